use super::*;

#[test]
fn a_bucket_answers_in_its_own_region_only() {
    on_the_gateway(async |bed| {
        let there = bed.aws.in_region("us-east-1");
        there.put_object("elsewhere", "key", "text").await.expect("the bucket's own region");
        let error = bed.aws.put_object("elsewhere", "key", "text").await.unwrap_err();
        assert_eq!(error.status, 301, "{error}");
        assert!(error.message.contains("PermanentRedirect"), "{error}");
        bed.aws.put_object("here", "key", "text").await.expect("a bucket of this region");
    });
}
