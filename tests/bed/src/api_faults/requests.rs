//! What a request asks of the API server, read from its method and URL as the API server's audit
//! log reads them, and patterns for such requests.

use http::{Method, Uri};
use tenon_aws_double::policy::glob;
use tenon_aws_double::request::Params;

/// A request as the API server's audit log names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for a
    /// path that is no resource, the method (`get`).
    pub verb: String,
    /// The API group; empty for the core group and for paths that are no resources.
    pub group: String,
    /// As RBAC writes it: `pods`, or `pods/eviction` for a subresource. Empty for a path that is no
    /// resource (`/readyz`).
    pub resource: String,
    /// The namespace; empty for what has none, and for a request across all namespaces.
    pub namespace: String,
    /// The object's name, also if a field selector names it; empty if the request is about no
    /// single object.
    pub name: String,
    /// Whether the answer begins with all objects: a `list`, or a `watch` that streams them or
    /// begins at no resourceVersion.
    pub lists: bool,
    /// Path and query.
    pub url: String,
}

impl ApiRequest {
    pub(super) fn read(method: &Method, uri: &Uri) -> Self {
        let params = Params::of_query(uri.query().unwrap_or_default());
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => return Self::of_path(method, uri),
        };
        // A namespace by itself is an object like others; `status` and `finalize` are its
        // subresources.
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let resource = [rest.first(), rest.get(2)].into_iter().flatten().copied();
        let selected = || params.get("fieldSelector")?.strip_prefix("metadata.name=");
        let name = rest.get(1).copied().or_else(selected).unwrap_or_default();
        let one = rest.len() > 1;
        let watch = !one && matches!(params.get("watch"), Some("true" | "1"));
        let verb = match *method {
            Method::GET | Method::HEAD if watch => "watch",
            Method::GET | Method::HEAD if one => "get",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ => method.as_str(),
        };
        let fresh = matches!(params.get("resourceVersion"), None | Some("" | "0"));
        let streams = params.get("sendInitialEvents") == Some("true");
        let asks_for_none = params.get("sendInitialEvents") == Some("false");
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.collect::<Vec<_>>().join("/"),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            lists: verb == "list" || watch && (streams || fresh && !asks_for_none),
            url: url(uri),
        }
    }

    fn of_path(method: &Method, uri: &Uri) -> Self {
        Self {
            verb: method.as_str().to_ascii_lowercase(),
            group: String::new(),
            resource: String::new(),
            namespace: String::new(),
            name: String::new(),
            lists: false,
            url: url(uri),
        }
    }

    pub(super) fn is_watch(&self) -> bool {
        self.verb == "watch"
    }
}

fn url(uri: &Uri) -> String {
    uri.path_and_query().map_or("/", |it| it.as_str()).to_owned()
}

/// Which requests are meant. In every text `*` stands for any characters and `?` for one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requests {
    verb: String,
    resource: String,
    name: String,
    namespace: String,
    url: String,
    lists_only: bool,
}

impl Requests {
    /// All requests with this verb for this resource, which is written as in RBAC:
    /// `Requests::of("create", "pods/eviction")`.
    pub fn of(verb: &str, resource: &str) -> Self {
        let any = || "*".to_owned();
        Self {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: any(),
            namespace: any(),
            url: any(),
            lists_only: false,
        }
    }

    /// Everything that is asked of the API server.
    pub fn any() -> Self {
        Self::of("*", "*")
    }

    /// Requests whose answer begins with all objects of the resource: `list`, and `watch` with the
    /// initial events. A watch that is under way already is not meant.
    pub fn lists(resource: &str) -> Self {
        Self { lists_only: true, ..Self::of("*", resource) }
    }

    /// Watches of the resource, those that are under way as well as new ones.
    pub fn watches(resource: &str) -> Self {
        Self::of("watch", resource)
    }

    /// Only those for objects of such a name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Only those in such a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Only those with such a path and query: `*labelSelector=*`.
    #[must_use]
    pub fn with_url(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    /// Whether a new request is meant.
    pub fn include(&self, request: &ApiRequest) -> bool {
        glob(&self.verb, &request.verb)
            && glob(&self.resource, &request.resource)
            && glob(&self.name, &request.name)
            && glob(&self.namespace, &request.namespace)
            && glob(&self.url, &request.url)
            && (request.lists || !self.lists_only)
    }

    /// Whether a request is meant whose answer has begun.
    pub(super) fn include_under_way(&self, request: &ApiRequest) -> bool {
        !self.lists_only && self.include(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, url: &str) -> ApiRequest {
        let method = method.parse().expect("a method");
        ApiRequest::read(&method, &url.parse().expect("a URL"))
    }

    /// Verb, group, resource, namespace and name of a request.
    fn named(method: &str, url: &str) -> [String; 5] {
        let it = read(method, url);
        [it.verb, it.group, it.resource, it.namespace, it.name]
    }

    #[test]
    fn requests_are_named_as_in_the_audit_log() {
        for (method, url, expected) in [
            ("GET", "/api/v1/nodes", ["list", "", "nodes", "", ""]),
            ("GET", "/api/v1/nodes?watch=true", ["watch", "", "nodes", "", ""]),
            (
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name%3Da",
                ["list", "", "nodes", "", "a"],
            ),
            ("GET", "https://h:1/api/v1/nodes/a", ["get", "", "nodes", "", "a"]),
            ("PATCH", "/api/v1/nodes/a/status?x=y", ["patch", "", "nodes/status", "", "a"]),
            (
                "POST",
                "/api/v1/namespaces/n/pods/p/eviction",
                ["create", "", "pods/eviction", "n", "p"],
            ),
            (
                "DELETE",
                "/apis/karpenter.sh/v1/nodeclaims/c",
                ["delete", "karpenter.sh", "nodeclaims", "", "c"],
            ),
            (
                "DELETE",
                "/apis/karpenter.sh/v1/nodeclaims",
                ["deletecollection", "karpenter.sh", "nodeclaims", "", ""],
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                ["update", "coordination.k8s.io", "leases", "n", "l"],
            ),
            ("GET", "/api/v1/namespaces/n", ["get", "", "namespaces", "n", "n"]),
            (
                "PUT",
                "/api/v1/namespaces/n/finalize",
                ["update", "", "namespaces/finalize", "n", "n"],
            ),
            ("GET", "/readyz", ["get", "", "", "", ""]),
            ("GET", "/apis/karpenter.sh/v1", ["get", "", "", "", ""]),
        ] {
            assert_eq!(named(method, url), expected.map(str::to_owned), "{method} {url}");
        }
    }

    #[test]
    fn a_watch_lists_when_it_begins_with_the_objects() {
        let lists = |query: &str| read("GET", &format!("/api/v1/pods?{query}")).lists;
        assert!(lists(""));
        assert!(lists("watch=true"));
        assert!(lists("watch=1&resourceVersion=0"));
        assert!(lists("watch=true&sendInitialEvents=true&resourceVersion=7"));
        assert!(!lists("watch=true&resourceVersion=7"));
        assert!(!lists("watch=true&sendInitialEvents=false"));
        assert!(!read("GET", "/api/v1/namespaces/n/pods/p").lists);
    }

    #[test]
    fn a_pattern_means_what_it_names_and_nothing_else() {
        let eviction = read("POST", "/api/v1/namespaces/n/pods/web-1/eviction");
        assert!(Requests::of("create", "pods/eviction").named("web-*").include(&eviction));
        assert!(Requests::any().in_namespace("n").with_url("*/eviction").include(&eviction));
        for other in [
            Requests::of("create", "pods"),
            Requests::of("delete", "pods/eviction"),
            Requests::of("create", "pods/eviction").named("db-*"),
            Requests::any().in_namespace("default"),
        ] {
            assert!(!other.include(&eviction), "{other:?}");
        }
    }

    #[test]
    fn a_list_is_over_when_its_watch_goes_on() {
        let watch = read("GET", "/api/v1/pods?watch=true&sendInitialEvents=true");
        assert!(Requests::lists("pods").include(&watch));
        assert!(!Requests::lists("pods").include_under_way(&watch));
        assert!(Requests::watches("pods").include_under_way(&watch));
        assert!(
            !Requests::lists("pods")
                .include(&read("GET", "/api/v1/pods?watch=1&resourceVersion=5"))
        );
    }
}
