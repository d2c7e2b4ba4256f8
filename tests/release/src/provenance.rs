//! Where a release comes from: an in-toto statement with SLSA's provenance about every file that
//! has a checksum, to be signed like the checksums.

use serde_json::{Value, json};

use crate::archive::Published;

/// Inputs and builder of a release.
#[derive(Clone, Debug)]
pub(crate) struct Build<'a> {
    /// Where the source is (`https://…`), if that is known.
    pub source: Option<&'a str>,
    /// Hash of the commit.
    pub commit: &'a str,
    /// Version of the workspace.
    pub version: &'a str,
    /// Who built it: the URL of a workflow, or what a person calls their machine.
    pub builder: &'a str,
    /// Which run of the builder it was.
    pub invocation: Option<&'a str>,
}

/// The in-toto statement with SLSA provenance about the published files.
pub(crate) fn statement(published: &[Published], build: &Build<'_>) -> Value {
    let subjects =
        published.iter().map(|it| json!({ "name": it.name, "digest": { "sha256": it.sha256 } }));
    let uri = build.source.map_or_else(|| "git+local".to_owned(), |url| format!("git+{url}"));
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects.collect::<Vec<_>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "cargo-release/v1",
                "externalParameters": { "version": build.version },
                "resolvedDependencies": [{ "uri": uri, "digest": { "gitCommit": build.commit } }],
            },
            "runDetails": {
                "builder": { "id": build.builder },
                "metadata": { "invocationId": build.invocation },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_subject_and_the_commit_is_what_it_comes_from() {
        let published = [Published { name: "a.tgz".to_owned(), sha256: "ab".to_owned() }];
        let build = Build {
            source: Some("https://git.example/tenon"),
            commit: "c0ffee",
            version: "1.2.3",
            builder: "me",
            invocation: None,
        };
        let statement = statement(&published, &build);
        assert_eq!(
            statement["subject"],
            json!([{ "name": "a.tgz", "digest": { "sha256": "ab" } }])
        );
        let from = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
        assert_eq!(
            *from,
            json!({ "uri": "git+https://git.example/tenon", "digest": { "gitCommit": "c0ffee" } })
        );
    }
}
