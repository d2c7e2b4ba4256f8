//! EC2's filters and pages, as AWS evaluates them: values of one filter are alternatives, filters
//! are all required.

use std::collections::BTreeMap;

use super::policy::glob;
use super::request::Params;
use super::response::AwsError;

/// Whether any of `values` matches `text`.
pub(crate) fn any_matches(values: &[String], text: &str) -> bool {
    values.iter().any(|pattern| glob(pattern, text))
}

/// Evaluates `tag:KEY`, `tag-key` and `tag-value`; `None` for another filter.
pub(crate) fn tag_filter(
    name: &str,
    values: &[String],
    tags: &BTreeMap<String, String>,
) -> Option<bool> {
    if let Some(key) = name.strip_prefix("tag:") {
        return Some(tags.get(key).is_some_and(|value| any_matches(values, value)));
    }
    match name {
        "tag-key" => Some(tags.keys().any(|key| any_matches(values, key))),
        "tag-value" => Some(tags.values().any(|value| any_matches(values, value))),
        _ => None,
    }
}

/// Keeps the items that pass all filters. `test` answers for one filter and item, `None` for a
/// filter that doesn't exist for these items.
pub(crate) fn select<T>(
    items: Vec<T>,
    filters: &[(String, Vec<String>)],
    mut test: impl FnMut(&T, &str, &[String]) -> Option<bool>,
) -> Result<Vec<T>, AwsError> {
    let mut kept = Vec::with_capacity(items.len());
    'items: for item in items {
        for (name, values) in filters {
            match test(&item, name, values) {
                Some(true) => {}
                Some(false) => continue 'items,
                None => {
                    return Err(AwsError::new(
                        "InvalidParameterValue",
                        format!("The filter '{name}' is invalid"),
                    ));
                }
            }
        }
        kept.push(item);
    }
    Ok(kept)
}

/// The page that `MaxResults` and `NextToken` ask for, and the token of the next. `limits` are the
/// smallest and the largest page; `default` is the page's size when the call doesn't say (`None`:
/// everything).
pub(crate) fn page<T>(
    items: Vec<T>,
    params: &Params,
    limits: (usize, usize),
    default: Option<usize>,
) -> Result<(Vec<T>, Option<String>), AwsError> {
    let size = match params.get("MaxResults") {
        None => default,
        Some(text) => {
            let size: usize = text.parse().unwrap_or(0);
            if size < limits.0 || size > limits.1 {
                let message = format!(
                    "Value ( {text} ) for parameter maxResults is invalid. Expecting a value between {} and {}.",
                    limits.0, limits.1
                );
                return Err(AwsError::new("InvalidParameterValue", message));
            }
            Some(size)
        }
    };
    let start = match params.get("NextToken").filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => {
            token.strip_prefix("page-").and_then(|offset| offset.parse().ok()).ok_or_else(|| {
                AwsError::new("InvalidNextToken", format!("The token '{token}' is invalid"))
            })?
        }
    };
    let end = size.map_or(usize::MAX, |size| start + size);
    let next = (end < items.len()).then(|| format!("page-{end}"));
    Ok((items.into_iter().take(end).skip(start).collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_alternatives_and_filters_add_up() {
        let tags = |key: &str| BTreeMap::from([(key.to_owned(), "v".to_owned())]);
        let filters = [
            ("tag-key".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("tag-value".to_owned(), vec!["v".to_owned()]),
        ];
        let kept = select(vec![tags("a"), tags("b"), tags("c")], &filters, |item, name, values| {
            tag_filter(name, values, item)
        })
        .unwrap();
        assert_eq!(kept.len(), 2);
        let wrong = [("nonsense".to_owned(), vec![])];
        assert_eq!(
            select(vec![tags("a")], &wrong, |item, name, values| tag_filter(name, values, item))
                .unwrap_err()
                .code,
            "InvalidParameterValue"
        );
    }

    #[test]
    fn pages_go_through_everything_once() {
        let mut seen = Vec::new();
        let mut params = Params::of([("MaxResults", "5")]);
        loop {
            let (items, next) = page((0..12).collect(), &params, (5, 100), None).unwrap();
            seen.extend(items);
            let Some(next) = next else { break };
            params.set("NextToken", next);
        }
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        assert!(page(vec![1], &Params::of([("MaxResults", "4")]), (5, 100), None).is_err());
        assert_eq!(
            page(vec![1], &Params::of([("NextToken", "x")]), (5, 100), None).unwrap_err().code,
            "InvalidNextToken"
        );
    }
}
