//! Launch template calls.

use super::super::aws_state::AwsState;
use super::super::consistency::Kind;
use super::super::filters::{any_matches, page, select, tag_filter};
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::service::Principal;
use super::super::templates::{Template, missing_id, missing_name};
use super::super::xml::{Element, render};
use super::wish::tag_specs;
use super::{client_token, invalid, list_answer, template_data, time};

/// Bytes of user data before base64.
const USER_DATA_LIMIT: usize = 16_384;

/// The template that parameters name, if other calls can see it already.
pub(super) fn visible(aws_state: &AwsState, params: &Params) -> Result<Template, AwsError> {
    let template = aws_state.templates().named_by(params)?;
    if aws_state.consistency().is_visible(Kind::LaunchTemplate, &template.id) {
        return Ok(template);
    }
    Err(match params.get("LaunchTemplateId") {
        Some(id) => missing_id(id),
        None => missing_name(&template.name),
    })
}

pub(super) fn create(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let name = params.get("LaunchTemplateName").unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || "()./_-".contains(c);
    if name.len() < 3 || name.len() > 128 || !name.chars().all(good) {
        let message = format!(
            "Value '{name}' for parameter launchTemplateName is invalid: 3 to 128 letters, digits and ().-/_ are allowed"
        );
        return Err(AwsError::new("InvalidLaunchTemplateName.MalformedException", message));
    }
    let data = data_of(params)?;
    let token = client_token(params);
    if let Some(made) = aws_state
        .templates()
        .by_name(name)
        .filter(|made| token.is_some() && made.client_token == token)
    {
        // The repetition of a request whose answer got lost.
        let inner = render(&[Element::node("launchTemplate", element(&made))]);
        return Ok(AwsResponse::ec2(request, &inner));
    }
    let now = aws_state.clock().now();
    let template = Template {
        id: aws_state.id("lt"),
        name: name.to_owned(),
        created: now,
        created_by: principal.arn.clone(),
        default_version: 1,
        versions: vec![data],
        client_token: token,
        tags: tag_specs(params).remove("launch-template").unwrap_or_default(),
    };
    let inner = render(&[Element::node("launchTemplate", element(&template))]);
    let id = template.id.clone();
    aws_state.templates().insert(template)?;
    aws_state.consistency().changed(Kind::LaunchTemplate, &id);
    Ok(AwsResponse::ec2(request, &inner).with_resources([id]))
}

fn data_of(params: &Params) -> Result<Params, AwsError> {
    let data = params.structure("LaunchTemplateData");
    if data.is_empty() {
        return Err(AwsError::new(
            "MissingParameter",
            "The request must contain the parameter LaunchTemplateData",
        ));
    }
    // Four characters of base64 are three bytes.
    if data.get("UserData").is_some_and(|text| text.len() / 4 * 3 > USER_DATA_LIMIT + 2) {
        return Err(invalid("User data is limited to 16384 bytes"));
    }
    Ok(data)
}

pub(super) fn create_version(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let template = visible(aws_state, params)?;
    let mut data = data_of(params)?;
    if let Some(source) = params.get("SourceVersion") {
        data = super::wish::overlay(template.version(Some(source))?.1, &data);
    }
    aws_state.templates().update(&template.id, |template| template.versions.push(data));
    let template =
        aws_state.templates().get(&template.id).ok_or_else(|| missing_id(&template.id))?;
    let newest = template.latest_version();
    let (_, data) = template.version(Some("$Latest"))?;
    let inner =
        render(&[Element::node("launchTemplateVersion", version_element(&template, newest, data))]);
    Ok(AwsResponse::ec2(request, &inner).with_resources([template.id]))
}

pub(super) fn modify(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let template = visible(aws_state, &request.params)?;
    let (version, _) = template.version(request.params.get("SetDefaultVersion"))?;
    aws_state.templates().update(&template.id, |template| template.default_version = version);
    let template =
        aws_state.templates().get(&template.id).ok_or_else(|| missing_id(&template.id))?;
    let inner = render(&[Element::node("launchTemplate", element(&template))]);
    Ok(AwsResponse::ec2(request, &inner).with_resources([template.id]))
}

pub(super) fn delete(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let template = aws_state.templates().named_by(&request.params)?;
    aws_state.templates().remove(&template.id);
    let inner = render(&[Element::node("launchTemplate", element(&template))]);
    Ok(AwsResponse::ec2(request, &inner).with_resources([template.id]))
}

pub(super) fn describe(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let mut found: Vec<Template> = aws_state.templates().all();
    found.retain(|template| aws_state.consistency().is_visible(Kind::LaunchTemplate, &template.id));
    let (ids, names) = (params.list("LaunchTemplateId"), params.list("LaunchTemplateName"));
    if let Some(id) = ids.iter().find(|id| !found.iter().any(|template| template.id == **id)) {
        return Err(missing_id(id));
    }
    if let Some(name) =
        names.iter().find(|name| !found.iter().any(|template| template.name == **name))
    {
        let message = format!(
            "At least one of the launch templates specified in the request does not exist: {name}"
        );
        return Err(AwsError::new("InvalidLaunchTemplateName.NotFoundException", message));
    }
    if !ids.is_empty() || !names.is_empty() {
        found.retain(|template| {
            ids.contains(&template.id.as_str()) || names.contains(&template.name.as_str())
        });
    }
    let found = select(found, &params.filters(), |template, name, values| match name {
        "launch-template-name" => Some(any_matches(values, &template.name)),
        "create-time" => Some(any_matches(values, &time(template.created))),
        _ => tag_filter(name, values, &template.tags),
    })?;
    let (found, next) = page(found, params, (1, 200), Some(200))?;
    Ok(list_answer(request, "launchTemplates", found.iter().map(element).collect(), next))
}

pub(super) fn describe_versions(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let template = visible(aws_state, params)?;
    let mut wanted = Vec::new();
    for version in params.list("LaunchTemplateVersion") {
        wanted.push(template.version(Some(version))?);
    }
    if wanted.is_empty() {
        wanted.extend((1..).zip(&template.versions));
    }
    let (found, next) = page(wanted, params, (1, 200), Some(200))?;
    let items =
        found.into_iter().map(|(number, data)| version_element(&template, number, data)).collect();
    Ok(list_answer(request, "launchTemplateVersionSet", items, next))
}

fn element(template: &Template) -> Vec<Element> {
    vec![
        Element::leaf("launchTemplateId", &template.id),
        Element::leaf("launchTemplateName", &template.name),
        Element::leaf("createTime", time(template.created)),
        Element::leaf("createdBy", &template.created_by),
        Element::leaf("defaultVersionNumber", template.default_version.to_string()),
        Element::leaf("latestVersionNumber", template.latest_version().to_string()),
        Element::tag_set(&template.tags),
    ]
}

fn version_element(template: &Template, number: u64, data: &Params) -> Vec<Element> {
    vec![
        Element::leaf("launchTemplateId", &template.id),
        Element::leaf("launchTemplateName", &template.name),
        Element::leaf("versionNumber", number.to_string()),
        Element::leaf("createTime", time(template.created)),
        Element::leaf("createdBy", &template.created_by),
        Element::leaf("defaultVersion", (number == template.default_version).to_string()),
        Element::node("launchTemplateData", template_data::elements(data)),
    ]
}
