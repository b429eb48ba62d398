//! Names of images, as container runtimes read them.
//! <https://github.com/distribution/reference/blob/main/reference.go>

/// The longest name, in bytes.
const NAME_MAX: usize = 255;
/// The longest tag, in bytes.
const TAG_MAX: usize = 128;
/// Algorithms of digests, and how many digits each has.
/// <https://github.com/opencontainers/go-digest/blob/master/algorithm.go>
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// What is wrong with a reference to an image (`[DOMAIN[:PORT]/]PATH[:TAG][@DIGEST]`), in the words of kubelets; `None` if it can be read.
pub(crate) fn why_invalid(image: &str) -> Option<&'static str> {
    const INVALID: Option<&str> = Some("invalid reference format");
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before a slash is that of a port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if is_of_a_domain(first) => (Some(first), path),
        _ => (None, name),
    };
    if name.len() > NAME_MAX {
        return Some("repository name must not be more than 255 characters");
    }
    if domain.is_some_and(|domain| !is_domain(domain))
        || tag.is_some_and(|tag| !is_tag(tag))
        || digest.is_some_and(|digest| !is_digest(digest))
    {
        return INVALID;
    }
    let is_id = |text: &str| text.len() == DIGESTS[0].1 && text.bytes().all(is_digit);
    if rest == image && is_id(rest) {
        return INVALID;
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) && path.to_ascii_lowercase().split('/').all(is_component) {
        return Some("repository name must be lowercase");
    }
    (!path.split('/').all(is_component)).then_some(INVALID).flatten()
}

/// Whether what stands before the first slash is no part of the path.
fn is_of_a_domain(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    // An address of IPv6 is in brackets.
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            return is_address && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_number));
        }
        None => domain
            .split_once(':')
            .map_or((domain, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        let is_alone = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        is_alone(label.bytes().next())
            && is_alone(label.bytes().last())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Lowercase letters and digits, in groups between which stands a dot, one or two underscores, or hyphens.
fn is_component(part: &str) -> bool {
    let is_letter = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    if !bytes.first().is_some_and(is_letter) || !bytes.last().is_some_and(is_letter) {
        return false;
    }
    let mut separators = bytes.split(is_letter).filter(|separator| !separator.is_empty());
    separators.all(|separator| matches!(separator, b"." | b"_" | b"__") || separator.iter().all(|b| *b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else {
        return false;
    };
    let mut known = DIGESTS.iter();
    known.any(|(name, length)| *name == algorithm && *length == digits.len()) && digits.bytes().all(is_digit)
}

fn is_digit(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runtimes_read_is_valid_and_nothing_else() {
        let digest = "sha256:".to_owned() + &"0a".repeat(32);
        for image in [
            "app",
            "app:v1",
            "library/app:v1.2-rc_3",
            "registry.example.com/shop/app:1",
            "registry:5000/app",
            "localhost/app:dev",
            "localhost:5000/a/b/c",
            "[fd00::1]:5000/app:v1",
            "Registry/app",
            "a__b/c-d.e---f",
            &format!("app@{digest}"),
            &format!("quay.io/app:v1@{digest}"),
        ] {
            assert_eq!(why_invalid(image), None, "{image}");
        }
        let lowercase = "repository name must be lowercase";
        let invalid = "invalid reference format";
        let long = "a".repeat(256);
        for (image, why) in [
            ("App:v1", lowercase),
            ("shop/App", lowercase),
            ("app:v1:v2", invalid),
            ("app:", invalid),
            ("app:-v1", invalid),
            ("app:v 1", invalid),
            ("app name:v1", invalid),
            ("app___b", invalid),
            ("-app", invalid),
            ("app/", invalid),
            ("/app", invalid),
            ("a//b", invalid),
            ("https://registry.example.com/app", invalid),
            ("registry.example.com:port/app", invalid),
            ("app@sha256:abc", invalid),
            (&format!("app@{}", digest.to_uppercase().replace("SHA", "sha")), invalid),
            (&format!("app@md5:{}", "0a".repeat(16)), invalid),
            (&"0a".repeat(32), invalid),
            ("äpp", invalid),
            (&long, "repository name must not be more than 255 characters"),
        ] {
            assert_eq!(why_invalid(image), Some(why), "{image}");
        }
    }
}
