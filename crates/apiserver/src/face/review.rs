//! Kinds that are asked and answer. There is one user, who may do everything.

use super::route::Target;
use super::{Asked, Good, body, not_allowed};
use flotilla_apimachinery::status::Status;
use http::Method;
use serde_json::json;

pub(super) fn serve(_server: &crate::Server, asked: &Asked<'_>, target: &Target) -> Result<Good, Status> {
    if *asked.method != Method::POST || target.name.is_some() {
        return Err(not_allowed());
    }
    let mut review = body::read(asked)?;
    body::check_kind(&target.info, &mut review)?;
    if review.get("metadata").is_none() {
        review["metadata"] = json!({});
    }
    review["status"] = match target.info.plural.as_str() {
        "selfsubjectaccessreviews" => {
            json!({"allowed": true, "reason": "the simulated API server lets everybody do everything"})
        }
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => {
            json!({"userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}})
        }
    };
    Ok(Good::json(201, review.to_string()))
}
