//! Servers that go silent. The clock is tokio's and paused: it moves on when nothing else is to be
//! done.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;

/// Answers the n-th connection by `serve`, and keeps it open.
async fn server<F>(serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> (Cluster, JoinSet<()>)
where
    F: Future<Output = TcpStream> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(serve(open.len(), stream).await);
        }
    });
    let config = Config::new(address.parse().expect("an address"));
    let client = Client::try_from(with_deadline(without_hidden_retries(config)));
    (Cluster::new(client.expect("a client"), Audit::default()), serving)
}

async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.expect("a request"));
    }
}

fn config_map() -> (ApiResource, Key) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
    let key = Key {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("kube-system".to_owned()),
        name: "x".to_owned(),
    };
    (resource, key)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_never_answers_is_given_up_with_advice() {
    let (cluster, _serving) = server(async |_, stream| stream).await;
    let (resource, key) = config_map();
    let began = Instant::now();
    let error = cluster.get(&resource, &key).await.expect_err("nobody answers");
    assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());
    assert!(error.is_silence());
    assert_eq!(
        error.to_string(),
        "get ConfigMap kube-system/x: the API server did not answer within 60 s"
    );
    // A write as well; it is not known whether it was carried out, and whoever repeats it knows
    // what that means.
    let began = Instant::now();
    let deleted = cluster.delete(&resource, &key, PropagationPolicy::Background).await;
    assert!(deleted.expect_err("nobody answers").is_silence());
    assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stops_half_way_is_given_up_and_a_slow_one_is_not() {
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (cluster, _serving) = server(move |n, mut stream| {
        let head = head.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(head.as_bytes()).await.expect("the head");
            let (first, second) = body.split_at(20);
            stream.write_all(first.as_bytes()).await.expect("half of it");
            // The first answer ends here; the second goes on after longer than all of it may take
            // at once.
            if n > 0 {
                for part in second.as_bytes().chunks(20) {
                    tokio::time::sleep(SILENCE * 3 / 4).await;
                    stream.write_all(part).await.expect("more of it");
                }
            }
            stream
        }
    })
    .await;
    let (resource, key) = config_map();
    let began = Instant::now();
    let error = cluster.get(&resource, &key).await.expect_err("the rest never comes");
    assert!(error.is_silence(), "{error}");
    assert_eq!(began.elapsed().as_secs(), SILENCE.as_secs());
    let began = Instant::now();
    let found = cluster.get(&resource, &key).await.expect("it is read to its end");
    assert_eq!(found.expect("it is there")["metadata"]["name"], "x");
    assert!(began.elapsed() > SILENCE, "{:?}", began.elapsed());
}
