//! What a request is about, as its method and URL say: for deadlines and metrics. Names of objects
//! and namespaces stay out.

use http::{Method, Uri};

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// What is done, in upstream's words: `GET`, `LIST`, `WATCH`, `CREATE`, `UPDATE`, `PATCH`,
    /// `DELETE`, `DELETECOLLECTION`.
    pub verb: &'static str,
    /// The API group; empty for the core and for what is no resource.
    pub group: String,
    /// The version of the API, e.g. `v1`.
    pub version: String,
    /// The plural of the kind, e.g. `nodeclaims`; empty when the request is not about a resource,
    /// e.g. for the list of an API's resources.
    pub resource: String,
    /// E.g. `status` or `eviction`; empty for the object itself.
    pub subresource: String,
}

impl Target {
    /// Of a request of this method and URL.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        // A server that is not at the root of its host has a prefix in front, which no group is
        // called like.
        let path = uri.path();
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let group = loop {
            match parts.next() {
                Some("api") => break Some(String::new()),
                Some("apis") => break parts.next().map(str::to_owned),
                Some(_) => {}
                None => break None,
            }
        };
        let version = group.as_ref().and_then(|_| parts.next()).unwrap_or_default().to_owned();
        let mut rest: Vec<&str> = parts.collect();
        // `namespaces/a` is an object, `namespaces/a/pods` are others in it, and
        // `namespaces/a/finalize` is a part of it.
        let parts_of_namespaces = ["finalize", "status"];
        if rest.len() > 2 && rest[0] == "namespaces" && !parts_of_namespaces.contains(&rest[2]) {
            rest.drain(..2);
        }
        let named = rest.len() > 1;
        let watches = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .any(|it| matches!(it, "watch" | "watch=1" | "watch=true"));
        let verb = match *method {
            Method::GET if watches => "WATCH",
            Method::GET if named || rest.is_empty() => "GET",
            Method::GET => "LIST",
            Method::POST => "CREATE",
            Method::PUT => "UPDATE",
            Method::PATCH => "PATCH",
            Method::DELETE if named => "DELETE",
            Method::DELETE => "DELETECOLLECTION",
            _ => "OTHER",
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        Self {
            verb,
            group: group.unwrap_or_default(),
            version,
            resource: part(0),
            subresource: part(2),
        }
    }

    /// The answer is a stream that is meant to stay open.
    pub(crate) fn is_watch(&self) -> bool {
        self.verb == "WATCH"
    }

    /// The answer is as long as there are objects.
    pub(crate) fn is_list(&self) -> bool {
        self.verb == "LIST"
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, version: _, resource, subresource } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if !subresource.is_empty() {
            write!(f, "/{subresource}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_by_its_method_and_url_without_any_name() {
        let table = [
            (Method::GET, "/api/v1/pods?limit=500", "LIST pods"),
            (Method::GET, "/api/v1/pods?allowWatchBookmarks=true&watch=true", "WATCH pods"),
            (Method::GET, "/api/v1/namespaces", "LIST namespaces"),
            (Method::GET, "/api/v1/namespaces/a", "GET namespaces"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "UPDATE namespaces/finalize"),
            (Method::GET, "/api/v1/namespaces/a/pods", "LIST pods"),
            (Method::GET, "/api/v1/namespaces/a/pods/watch", "GET pods"),
            (Method::POST, "/api/v1/namespaces/a/pods/b/eviction", "CREATE pods/eviction"),
            (Method::DELETE, "/api/v1/nodes/a", "DELETE nodes"),
            (
                Method::PATCH,
                "/apis/karpenter.sh/v1/nodeclaims/a/status?fieldManager=x",
                "PATCH nodeclaims.karpenter.sh/status",
            ),
            (
                Method::GET,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                "GET leases.coordination.k8s.io",
            ),
            (Method::GET, "/clusters/c/apis/apps/v1/deployments", "LIST deployments.apps"),
            (Method::GET, "/apis/resource.k8s.io/v1", "GET .resource.k8s.io"),
            (Method::GET, "/version", "GET "),
        ];
        for (method, url, expected) in table {
            let target = Target::of(&method, &url.parse().unwrap());
            assert_eq!(target.to_string(), expected, "{method} {url}");
        }
        let eviction =
            Target::of(&Method::POST, &"/api/v1/namespaces/a/pods/b/eviction".parse().unwrap());
        assert_eq!((eviction.group.as_str(), eviction.version.as_str()), ("", "v1"));
    }
}
