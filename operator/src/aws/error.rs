//! What failed when talking to AWS, by what has to be done about it.
//!
//! Every comparison with an AWS error code or message is in this file, so that the rest of the
//! provider matches on [`Kind`] only and one table test shows the whole mapping.

use aws_sdk_ec2::operation::RequestId as _;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::display::DisplayErrorContext;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::work_queue::Concern;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing of what was asked for can be had now.
    InsufficientCapacity,
    /// What was named does not exist (yet, or any more).
    NotFound,
    /// What was to be created exists.
    AlreadyExists,
    /// The caller may not do this.
    Unauthorized,
    /// Too many calls; later it will work.
    Throttled,
    /// A quota of the account.
    LimitExceeded,
    /// A fault of the service or of the connection; later it will work.
    Transient,
    /// The dry run would have succeeded.
    DryRun,
    /// Anything else.
    Other,
}

/// A call to AWS that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{operation} failed{}: {message}{}",
    prefixed(" with ", code.as_deref(), ""),
    prefixed(" (request id ", request_id.as_deref(), ")")
)]
pub struct Error {
    /// The API operation, e.g. `CreateFleet`.
    pub operation: &'static str,
    /// What to do about it.
    pub kind: Kind,
    /// AWS's error code, when AWS answered.
    pub code: Option<String>,
    /// What AWS, or the connection, said.
    pub message: String,
    /// By which AWS's support finds the call, when AWS answered.
    pub request_id: Option<String>,
}

fn prefixed(before: &str, text: Option<&str>, after: &str) -> String {
    text.map(|text| format!("{before}{text}{after}")).unwrap_or_default()
}

/// Result of a call to AWS.
pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// From an SDK error.
    pub(crate) fn from_sdk<E>(operation: &'static str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        let (code, message) = match error {
            SdkError::ServiceError(service) => {
                let meta = service.err().meta();
                (meta.code().map(ToOwned::to_owned), meta.message().map(ToOwned::to_owned))
            }
            _ => (None, None),
        };
        let kind = match (&code, status) {
            (Some(code), _) if kind_of(code) != Kind::Other => kind_of(code),
            (_, Some(status)) if status >= 500 => Kind::Transient,
            (_, Some(429)) => Kind::Throttled,
            // As S3 answers a HEAD request.
            (None, Some(403)) => Kind::Unauthorized,
            // An answer that can't be read says nothing about what became of the call.
            (None, Some(status)) if status < 400 => Kind::Transient,
            (Some(_), _) | (None, Some(_)) => Kind::Other,
            (None, None) => Kind::Transient,
        };
        let message = message.unwrap_or_else(|| DisplayErrorContext(error).to_string());
        let request_id = error.request_id().map(ToOwned::to_owned);
        Self { operation, kind, code, message, request_id }
    }

    /// From an error item inside of a successful answer.
    pub(crate) fn from_code(operation: &'static str, code: &str, message: &str) -> Self {
        Self {
            operation,
            kind: kind_of(code),
            code: Some(code.to_owned()),
            message: message.to_owned(),
            request_id: None,
        }
    }

    /// An answer that lacks what it must have.
    pub fn unexpected(operation: &'static str, message: impl Into<String>) -> Self {
        Self { operation, kind: Kind::Other, code: None, message: message.into(), request_id: None }
    }

    /// Whether what was named does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Whether a bucket has no object with the key that was named.
    pub(crate) fn is_missing_object(&self) -> bool {
        self.code.as_deref() == Some("NoSuchKey")
    }

    /// An answer that broke off.
    pub(crate) fn interrupted(operation: &'static str) -> Self {
        Self {
            operation,
            kind: Kind::Transient,
            code: None,
            message: "the connection broke".to_owned(),
            request_id: None,
        }
    }

    /// Who has to know.
    pub fn concern(&self) -> Concern {
        if self.is_retryable() { Concern::Passing } else { Concern::Administrator }
    }

    /// Whether the same call may succeed a little later.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self.kind, Kind::Throttled | Kind::Transient)
    }

    /// Whether a launch template that was to be used is gone.
    pub(crate) fn is_launch_template_not_found(&self) -> bool {
        self.code.as_deref().is_some_and(|code| {
            code == "InvalidLaunchTemplateName.NotFoundException"
                || code == "InvalidLaunchTemplateId.NotFound"
        })
    }

    /// Whether the instance profile is not (yet) known to EC2.
    pub(crate) fn is_instance_profile_not_found(&self) -> bool {
        self.message.to_ascii_lowercase().contains("invalid iam instance profile name")
    }

    /// Whether the role to attach does not exist, as opposed to the profile.
    pub(crate) fn is_role_not_found(&self) -> bool {
        self.is_not_found() && self.message.contains("role")
    }

    /// Reason (condition reason, metric label) and message for people, of a launch or a validation
    /// that failed with this.
    pub(crate) fn launch_reason(&self) -> (&'static str, String) {
        match (self.code.as_deref(), self.kind) {
            (None, Kind::Transient) => {
                ("ConnectionFailed", format!("AWS did not answer ({})", self.message))
            }
            (code, _) => launch_reason(code.unwrap_or_default(), &self.message),
        }
    }

    /// `code: message`, as in conditions.
    pub fn text(&self) -> String {
        match &self.code {
            Some(code) => format!("{code}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

/// What a code means, for calls and for the error items of CreateFleet.
pub(super) fn kind_of(code: &str) -> Kind {
    match code {
        "InsufficientInstanceCapacity"
        | "MaxSpotInstanceCountExceeded"
        | "VcpuLimitExceeded"
        | "UnfulfillableCapacity"
        | "Unsupported"
        | "InsufficientFreeAddressesInSubnet"
        | "MaxFleetCountExceeded"
        | "ReservationCapacityExceeded" => Kind::InsufficientCapacity,
        "InvalidCapacityReservationId.NotFound"
        | "InvalidInstanceID.NotFound"
        | "InvalidLaunchTemplateName.NotFoundException"
        | "InvalidLaunchTemplateId.NotFound"
        | "QueueDoesNotExist"
        | "AWS.SimpleQueueService.NonExistentQueue"
        | "NoSuchBucket"
        | "NoSuchEntity"
        | "NoSuchKey"
        | "ParameterNotFound"
        | "InvalidPlacementGroup.Unknown"
        | "ResourceNotFoundException" => Kind::NotFound,
        "EntityAlreadyExists" | "InvalidLaunchTemplateName.AlreadyExistsException" => {
            Kind::AlreadyExists
        }
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "AuthFailure"
        | "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => Kind::Unauthorized,
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "EC2ThrottledException"
        | "TooManyRequestsException" => Kind::Throttled,
        "LimitExceeded" | "LimitExceededException" => Kind::LimitExceeded,
        "InternalError"
        | "InternalFailure"
        | "ServiceUnavailable"
        | "Unavailable"
        | "InternalServerException" => Kind::Transient,
        "DryRunOperation" => Kind::DryRun,
        _ => Kind::Other,
    }
}

/// EC2 ends a refusal with an encoded explanation that is another one each time: conditions would
/// change whenever the same question is asked again.
fn without_encoded_part(text: &str) -> &str {
    text.split("Encoded authorization failure message:").next().unwrap_or(text).trim_end()
}

/// The code with which EC2 says that the account lacks the role for spot and the caller may not
/// create it.
pub(super) const SPOT_ROLE_MISSING: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

/// Whether EC2 says that a spread placement group is full in a zone, for whatever type.
pub(super) fn is_spread_limit(message: &str) -> bool {
    message.contains("limit of instances in this spread placement group")
}

/// The code with which EC2 says that a subnet has no free addresses.
pub(super) const SUBNET_FULL: &str = "InsufficientFreeAddressesInSubnet";

/// Reason (condition reason, metric label) and message for people, of a launch or a validation that
/// failed with this code and message. The first row that matches counts.
pub(super) fn launch_reason(code: &str, message: &str) -> (&'static str, String) {
    let text = format!("{code}: {message}");
    let has = |part: &str| text.contains(part);
    let plain = |reason: &'static str, message: &str| (reason, format!("{message} ({text})"));
    if has(SPOT_ROLE_MISSING) {
        return plain(
            "SpotSLRCreationFailed",
            "the service-linked role for spot is missing and the controller may not create it: run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once in this account",
        );
    }
    if has("Not authorized for images") {
        return plain(
            "AMIAuthorizationFailure",
            "this account may not launch from the selected AMI: share the image with it or select another one",
        );
    }
    if has("UnauthorizedOperation") || has("AccessDenied") || has("AuthFailure") {
        let message = if has("permissions boundary") {
            "the controller's permissions boundary forbids this call"
        } else if has("explicit deny in a service control policy") {
            "a service control policy of the organization denies this call"
        } else {
            "the controller's role lacks a permission for this call"
        };
        return ("Unauthorized", format!("{message}: {}", without_encoded_part(&text)));
    }
    if has("InvalidParameter") && has("belong to different networks") {
        return plain(
            "SecurityGroupSubnetVPCMismatch",
            "the selected security groups and subnets are in different VPCs",
        );
    }
    const TABLE: &[(&str, &str, &str)] = &[
        (
            "iamInstanceProfile.name is invalid",
            "InstanceProfileNameInvalid",
            "EC2 does not know the instance profile",
        ),
        (
            "Invalid IAM Instance Profile name",
            "InstanceProfileNameInvalid",
            "EC2 does not know the instance profile",
        ),
        (
            "InvalidLaunchTemplateId.NotFound",
            "LaunchTemplateNotFound",
            "the launch template was deleted in the meantime",
        ),
        (
            "InvalidLaunchTemplateName.NotFoundException",
            "LaunchTemplateNotFound",
            "the launch template was deleted in the meantime",
        ),
        (
            "User data is limited to",
            "UserDataSizeLimitExceeded",
            "the user data exceeds EC2's limit of 16384 bytes",
        ),
        ("InvalidAMIID.Malformed", "InvalidAMIID", "the AMI id is malformed"),
        ("InvalidAMIID.NotFound", "AMINotFound", "the AMI does not exist in this region"),
        (
            "not eligible for Free Tier",
            "FreeTierIneligible",
            "the account may only launch instance types of the free tier",
        ),
        (
            "MaxFleetCountExceeded",
            "FleetQuotaExceeded",
            "the account's quota of EC2 fleets is exhausted",
        ),
        ("PendingVerification", "AccountPendingVerification", "AWS is still verifying the account"),
        (
            "MaxSpotInstanceCountExceeded",
            "SpotQuotaExceeded",
            "the account's spot quota is exhausted",
        ),
        ("VcpuLimitExceeded", "VCPULimitExceeded", "the account's vCPU quota is exhausted"),
        (
            "InsufficientFreeAddressesInSubnet",
            "InsufficientFreeAddressesInSubnet",
            "the subnet has no free addresses",
        ),
    ];
    for (part, reason, message) in TABLE {
        if has(part) {
            return (reason, format!("{message} ({text})"));
        }
    }
    match kind_of(code) {
        Kind::Throttled => plain("RequestLimitExceeded", "AWS throttles the account's calls"),
        Kind::Transient => plain("InternalError", "AWS had an internal error"),
        _ => ("LaunchFailed", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_kinds() {
        let table = [
            ("InsufficientInstanceCapacity", Kind::InsufficientCapacity),
            ("MaxSpotInstanceCountExceeded", Kind::InsufficientCapacity),
            ("VcpuLimitExceeded", Kind::InsufficientCapacity),
            ("UnfulfillableCapacity", Kind::InsufficientCapacity),
            ("Unsupported", Kind::InsufficientCapacity),
            ("InsufficientFreeAddressesInSubnet", Kind::InsufficientCapacity),
            ("MaxFleetCountExceeded", Kind::InsufficientCapacity),
            ("ReservationCapacityExceeded", Kind::InsufficientCapacity),
            ("InvalidInstanceID.NotFound", Kind::NotFound),
            ("InvalidLaunchTemplateName.NotFoundException", Kind::NotFound),
            ("InvalidLaunchTemplateId.NotFound", Kind::NotFound),
            ("InvalidCapacityReservationId.NotFound", Kind::NotFound),
            ("QueueDoesNotExist", Kind::NotFound),
            ("NoSuchEntity", Kind::NotFound),
            ("ParameterNotFound", Kind::NotFound),
            ("EntityAlreadyExists", Kind::AlreadyExists),
            ("UnauthorizedOperation", Kind::Unauthorized),
            ("AccessDenied", Kind::Unauthorized),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", Kind::Unauthorized),
            ("RequestLimitExceeded", Kind::Throttled),
            ("DryRunOperation", Kind::DryRun),
            ("InternalError", Kind::Transient),
            ("InvalidParameterValue", Kind::Other),
            ("InvalidAMIID.NotFound", Kind::Other),
        ];
        for (code, kind) in table {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }

    #[test]
    fn codes_and_messages_map_to_reasons_of_conditions() {
        let table = [
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", "SpotSLRCreationFailed"),
            ("UnauthorizedOperation", "You are not authorized", "Unauthorized"),
            ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
            (
                "InvalidParameter",
                "Security group sg-1 and subnet subnet-1 belong to different networks.",
                "SecurityGroupSubnetVPCMismatch",
            ),
            (
                "InvalidParameterValue",
                "Value (x) for parameter iamInstanceProfile.name is invalid",
                "InstanceProfileNameInvalid",
            ),
            ("InvalidLaunchTemplateId.NotFound", "", "LaunchTemplateNotFound"),
            (
                "InvalidUserData.Malformed",
                "User data is limited to 16384 bytes",
                "UserDataSizeLimitExceeded",
            ),
            ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
            ("InvalidAMIID.NotFound", "", "AMINotFound"),
            ("RequestLimitExceeded", "", "RequestLimitExceeded"),
            ("Throttling", "Rate exceeded", "RequestLimitExceeded"),
            ("InternalError", "", "InternalError"),
            ("ServiceUnavailable", "", "InternalError"),
            (
                "InvalidParameterCombination",
                "The specified instance type is not eligible for Free Tier",
                "FreeTierIneligible",
            ),
            ("MaxFleetCountExceeded", "", "FleetQuotaExceeded"),
            ("PendingVerification", "", "AccountPendingVerification"),
            ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
            ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
            ("InsufficientFreeAddressesInSubnet", "", "InsufficientFreeAddressesInSubnet"),
            ("InsufficientInstanceCapacity", "none left", "LaunchFailed"),
            ("Unknown", "x", "LaunchFailed"),
        ];
        for (code, message, reason) in table {
            assert_eq!(launch_reason(code, message).0, reason, "{code}: {message}");
        }
    }

    #[test]
    fn an_error_tells_operation_code_and_request_id() {
        let error = Error {
            request_id: Some("req-1".to_owned()),
            ..Error::from_code("CreateFleet", "RequestLimitExceeded", "Request limit exceeded.")
        };
        assert_eq!(
            error.to_string(),
            "CreateFleet failed with RequestLimitExceeded: Request limit exceeded. (request id req-1)"
        );
        let unreachable = Error {
            kind: Kind::Transient,
            ..Error::unexpected("CreateFleet", "connection refused")
        };
        assert_eq!(unreachable.launch_reason().0, "ConnectionFailed");
        assert_eq!(unreachable.to_string(), "CreateFleet failed: connection refused");
    }

    #[test]
    fn the_same_refusal_has_the_same_message_each_time() {
        let refused = |encoded: &str| {
            let message = format!(
                "You are not authorized to perform this operation. Encoded authorization failure message: {encoded}"
            );
            launch_reason("UnauthorizedOperation", &message).1
        };
        assert_eq!(refused("4wLs0x"), refused("9aQz1y"));
        assert!(refused("4wLs0x").ends_with("perform this operation."), "{}", refused("4wLs0x"));
    }

    #[test]
    fn says_whose_policy_denied() {
        let (_, boundary) = launch_reason(
            "UnauthorizedOperation",
            "because no permissions boundary allows the action",
        );
        assert!(boundary.contains("permissions boundary forbids"), "{boundary}");
        let (_, scp) = launch_reason(
            "UnauthorizedOperation",
            "with an explicit deny in a service control policy",
        );
        assert!(scp.contains("service control policy of"), "{scp}");
    }
}
