//! Calls that AWS did not answer, in words: the SDK's own errors name its types.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::result::SdkError;

use crate::words::root;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// Nothing was sent: no credentials are configured.
    NoCredentials,
    /// Nothing was sent: the configured credentials can't be loaded.
    BadCredentials,
    /// Nothing was sent: the profile's session of IAM Identity Center has expired, or never began.
    NoSession,
    /// Nothing was sent: the profile gets its credentials in a way that this program does not have.
    UnsupportedCredentials,
    /// It was not reached, or sent nothing that can be read.
    Unreached,
}

/// Why there is no answer, as kind and in words.
pub(super) fn explain<E, R>(error: &SdkError<E, R>) -> (NoAnswer, String)
where
    E: std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    if let Some(error) = credentials_error(error) {
        return explain_credentials(error);
    }
    let why = root(error);
    let text = match error {
        SdkError::TimeoutError(_) => "AWS did not answer in time".to_owned(),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            "AWS did not answer in time".to_owned()
        }
        SdkError::DispatchFailure(_) => format!("AWS can't be reached: {why}"),
        SdkError::ConstructionFailure(_) => format!("the request can't be built: {why}"),
        _ => format!("the answer is not one of AWS: {why}"),
    };
    (NoAnswer::Unreached, text)
}

fn credentials_error<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a CredentialsError> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// An error, and those that caused it.
fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Whether credentials of IAM Identity Center are missing because nobody is logged in. The SDK's
/// types for that are private.
fn is_logged_out(error: &CredentialsError) -> bool {
    chain(error).any(|error| {
        let text = error.to_string();
        // The token's file, of either kind of profile; and a token that was revoked.
        ["SSO token", "/sso/cache/", "Session token not found"].iter().any(|it| text.contains(it))
    })
}

fn explain_credentials(error: &CredentialsError) -> (NoAnswer, String) {
    let why = root(error);
    if matches!(error, CredentialsError::CredentialsNotLoaded(_)) {
        return (NoAnswer::NoCredentials, "no AWS credentials are configured".to_owned());
    }
    if is_logged_out(error) {
        let text = "the profile has no AWS SSO session, or its session has expired";
        return (NoAnswer::NoSession, text.to_owned());
    }
    // The SDK asks for a feature of the build, which nobody who runs the program can give it.
    if why.contains("cargo feature") {
        let text = "the profile's kind of AWS credentials (such as `aws login`) is not supported";
        return (NoAnswer::UnsupportedCredentials, text.to_owned());
    }
    // A process that fails without a word leaves the label behind.
    let why = why.trim_end().trim_end_matches(". Stderr:");
    (NoAnswer::BadCredentials, format!("the AWS credentials can't be loaded: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_told_apart_without_the_names_of_types() {
        let none = CredentialsError::not_loaded("environment variable not set");
        let (kind, text) = explain_credentials(&none);
        assert_eq!((kind, &*text), (NoAnswer::NoCredentials, "no AWS credentials are configured"));
        let login = CredentialsError::invalid_configuration(
            "This behavior requires following cargo feature(s) enabled: credentials-login",
        );
        assert_eq!(explain_credentials(&login).0, NoAnswer::UnsupportedCredentials);
        for text in [
            "the SSO token has expired and cannot be refreshed",
            "failed to read `/home/a/.aws/sso/cache/b.json`",
            "UnauthorizedException: Session token not found or invalid",
        ] {
            let logged_out = CredentialsError::provider_error(text);
            assert_eq!(explain_credentials(&logged_out).0, NoAnswer::NoSession, "{text}");
        }
        let failed = CredentialsError::provider_error("the process ended with status 1");
        let (kind, text) = explain_credentials(&failed);
        assert_eq!(kind, NoAnswer::BadCredentials);
        assert_eq!(text, "the AWS credentials can't be loaded: the process ended with status 1");
    }
}
