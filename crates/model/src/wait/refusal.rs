//! Why the API server refused a request, by its words.
//!
//! Names and messages that others have chosen stand in what it says, too: a webhook may deny "because of an exceeded quota", and a service
//! account may be called like a policy. So each is known by how the API server begins, never by words anywhere.

use crate::lines::in_command;

/// Who refused, and what for. Names are as the API server says them: for a command they go through [`in_command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'m> {
    /// An admission webhook of this name denied it.
    Webhook(&'m str),
    /// A ValidatingAdmissionPolicy of this name denied it.
    Policy(&'m str),
    /// A ResourceQuota has no room for it.
    Quota,
    /// A ResourceQuota counts what the object does not say.
    QuotaAsksFor,
    /// It asks for more, or less, than a LimitRange allows.
    LimitRange,
    /// It does not hold to the pod security that the namespace enforces.
    PodSecurity,
    /// There is no service account of this name.
    NoServiceAccount(&'m str),
    /// There is no class of this kind and name.
    NoClass(&'static str, &'m str),
    /// The pod's node could never give these resources (`pods/resize`, since Kubernetes 1.35).
    NodeTooSmall,
    /// Whoever asked may not.
    NoRight(Right<'m>),
}

/// A right that whoever asked lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right<'m> {
    /// Whoever asked.
    pub user: &'m str,
    /// What was asked for, such as `create`.
    pub verb: &'m str,
    /// Of what, such as `pods` or `pods/resize`.
    pub resource: &'m str,
}

impl<'m> Refusal<'m> {
    /// What this message of the API server says, if it is one of these.
    pub fn of(message: &'m str) -> Option<Refusal<'m>> {
        if let Some(rest) = message.strip_prefix("admission webhook \"") {
            let (name, rest) = rest.split_once('"')?;
            return rest
                .starts_with(" denied the request")
                .then_some(Refusal::Webhook(name));
        }
        let (head, why) = message.split_once(" is forbidden: ")?;
        is_head(head).then(|| Refusal::because(why))?
    }

    /// Whether it is about what was asked for, so that whoever asks for the same is refused alike. Rights are those of one user, and webhooks,
    /// policies and the pod security of a namespace may exempt some.
    pub fn is_for_everyone(&self) -> bool {
        match self {
            Refusal::Quota
            | Refusal::QuotaAsksFor
            | Refusal::LimitRange
            | Refusal::NoServiceAccount(_)
            | Refusal::NoClass(..)
            | Refusal::NodeTooSmall => true,
            Refusal::Webhook(_) | Refusal::Policy(_) | Refusal::PodSecurity | Refusal::NoRight(_) => false,
        }
    }

    fn because(why: &'m str) -> Option<Refusal<'m>> {
        if let Some(rest) = why.strip_prefix("ValidatingAdmissionPolicy '") {
            let (name, rest) = rest.split_once('\'')?;
            // Of a policy that is broken it names no binding.
            let bound = rest
                .strip_prefix(" with binding '")
                .and_then(|rest| rest.split_once('\''));
            let rest = bound.map_or(rest, |(_, rest)| rest);
            return rest.starts_with(" denied request").then_some(Refusal::Policy(name));
        }
        if let Some(rest) = why.strip_prefix("error looking up service account ") {
            let (key, _) = rest.split_once([' ', ',', ':'])?;
            let (_, name) = key.split_once('/')?;
            return Some(Refusal::NoServiceAccount(name));
        }
        if let Some(rest) = why.strip_prefix("no PriorityClass with name ") {
            return Some(Refusal::NoClass("PriorityClass", rest.split_once(" was found")?.0));
        }
        if let Some(rest) = why.strip_prefix("pod rejected: RuntimeClass \"") {
            return Some(Refusal::NoClass("RuntimeClass", rest.split_once("\" not found")?.0));
        }
        if let Some(rest) = why.strip_prefix("User \"") {
            return Right::of(rest).map(Refusal::NoRight);
        }
        let begins = |words: &[&str]| words.iter().any(|word| why.starts_with(word));
        if begins(&["exceeded quota: "]) {
            Some(Refusal::Quota)
        } else if begins(&["failed quota: "]) {
            Some(Refusal::QuotaAsksFor)
        } else if begins(&["violates PodSecurity \""]) {
            Some(Refusal::PodSecurity)
        } else if begins(&["node didn't have enough allocatable resources"]) {
            Some(Refusal::NodeTooSmall)
        } else {
            is_of_a_limit_range(why).then_some(Refusal::LimitRange)
        }
    }
}

impl<'m> Right<'m> {
    /// `NAME" cannot VERB resource "RESOURCE" in API group ...`
    fn of(rest: &'m str) -> Option<Right<'m>> {
        let (user, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, _) = rest.split_once('"')?;
        Some(Right { user, verb, resource })
    }

    /// The command that shows whether it has the right by now.
    pub fn question(&self, namespace: &str) -> String {
        let resource = self.resource.split('/').map(in_command).collect::<Vec<_>>().join("/");
        let user = self.user.split(':').map(in_command).collect::<Vec<_>>().join(":");
        format!(
            "kubectl auth can-i {} {resource} -n {} --as={user}",
            in_command(self.verb),
            in_command(namespace)
        )
    }
}

/// `RESOURCE "NAME"`, and for what has no name `RESOURCE`: what follows is the API server's own word. Names that others chose, such as keys of
/// maps, may stand in the middle of what it says otherwise.
fn is_head(head: &str) -> bool {
    let is_word = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"');
    match head.split_once(" \"") {
        None => is_word(head),
        Some((resource, name)) => {
            is_word(resource)
                && name
                    .strip_suffix('"')
                    .is_some_and(|name| name.is_empty() || is_word(name))
        }
    }
}

/// `maximum cpu usage per Container is 1, but limit is 2`, `minimum ...` and `cpu max limit to request ratio per Container is 2, but ...`;
/// several stand in brackets.
fn is_of_a_limit_range(why: &str) -> bool {
    let why = why.strip_prefix('[').unwrap_or(why);
    let words: Vec<&str> = why.split(' ').take(8).collect();
    matches!(
        words.as_slice(),
        ["maximum" | "minimum", _, "usage", "per", ..] | [_, "max", "limit", "to", "request", "ratio", "per", ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_known_by_the_words_of_the_api_server() {
        let right = Right {
            user: "system:serviceaccount:flotilla-system:flotilla",
            verb: "patch",
            resource: "pods/resize",
        };
        for (message, expected) in [
            (
                "admission webhook \"own.example.com\" denied the request: no",
                Some(Refusal::Webhook("own.example.com")),
            ),
            (
                "admission webhook \"own.example.com\" denied the request without explanation",
                Some(Refusal::Webhook("own.example.com")),
            ),
            ("admission webhook \"own.example.com\" does not support dry run", None),
            (
                "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'two' with binding 'all' denied request: name an owner",
                Some(Refusal::Policy("two")),
            ),
            (
                "pods \"web-0\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
                Some(Refusal::Quota),
            ),
            (
                "pods \"web-0\" is forbidden: failed quota: q: must specify limits.cpu for: main",
                Some(Refusal::QuotaAsksFor),
            ),
            (
                "pods \"web-0\" is forbidden: error looking up service account ns/robot: serviceaccount \"robot\" not found",
                Some(Refusal::NoServiceAccount("robot")),
            ),
            (
                "pods \"web-0\" is forbidden: no PriorityClass with name high was found",
                Some(Refusal::NoClass("PriorityClass", "high")),
            ),
            (
                "pods \"web-0\" is forbidden: pod rejected: RuntimeClass \"gvisor\" not found",
                Some(Refusal::NoClass("RuntimeClass", "gvisor")),
            ),
            (
                "pods \"web-0\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
                Some(Refusal::PodSecurity),
            ),
            (
                "persistentvolumeclaims \"data-web-0\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
                Some(Refusal::LimitRange),
            ),
            (
                "pods \"web-0\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, minimum memory usage per Pod is 1Gi]",
                Some(Refusal::LimitRange),
            ),
            (
                "pods \"web-0\" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4",
                Some(Refusal::LimitRange),
            ),
            (
                "pods \"web-0\" is forbidden: node didn't have enough allocatable resources: cpu",
                Some(Refusal::NodeTooSmall),
            ),
            (
                "pods \"web-0\" is forbidden: User \"system:serviceaccount:flotilla-system:flotilla\" cannot patch resource \"pods/resize\" in API \
                 group \"\" in the namespace \"ns\"",
                Some(Refusal::NoRight(right)),
            ),
            (
                "Pod \"web-0\" is invalid: spec.containers[0].image: Required value",
                None,
            ),
        ] {
            assert_eq!(Refusal::of(message), expected, "{message}");
        }
        assert_eq!(
            right.question("ns"),
            "kubectl auth can-i patch pods/resize -n ns --as=system:serviceaccount:flotilla-system:flotilla"
        );
    }

    /// What others name and say stands further back.
    #[test]
    fn nobody_imitates_the_api_server_by_a_name_or_a_message() {
        for (message, expected) in [
            (
                "admission webhook \"a.example.com\" denied the request: pods \"web-0\" is forbidden: exceeded quota: q",
                Some(Refusal::Webhook("a.example.com")),
            ),
            (
                "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: exceeded quota: \
                 ValidatingAdmissionPolicy 'other' with binding 'b' denied request",
                Some(Refusal::Policy("a")),
            ),
            (
                "pods \"web-0\" is forbidden: error looking up service account ns/exceeded-quota: serviceaccount \"exceeded quota: q\" not found",
                Some(Refusal::NoServiceAccount("exceeded-quota")),
            ),
            (
                "pods \"web-0\" is forbidden: no PriorityClass with name x\" is forbidden: exceeded quota: was found",
                Some(Refusal::NoClass("PriorityClass", "x\" is forbidden: exceeded quota:")),
            ),
            (
                "somebody says that pods \"web-0\" is forbidden: exceeded quota: q",
                None,
            ),
        ] {
            assert_eq!(Refusal::of(message), expected, "{message}");
        }
    }
}
