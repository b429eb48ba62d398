//! References to images: `[registry[:port]/]repository[:tag][@digest]` (STS-4.6).

/// A reference with everything that is usually left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    registry: &'a str,
    repository: String,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

const DOCKER: &str = "docker.io";

/// Reads a reference. `None` if it has no repository.
pub fn parse(reference: &str) -> Option<Image<'_>> {
    let reference = reference.split_once("://").map_or(reference, |(_, rest)| rest);
    let (name, digest) = match reference.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (reference, None),
    };
    // A colon behind the last slash begins a tag; one before it, a port.
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[last..].find(':') {
        Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
        None => (name, None),
    };
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DOCKER, name),
    };
    if repository.is_empty() {
        return None;
    }
    let registry = if registry == "index.docker.io" {
        DOCKER
    } else {
        registry
    };
    let repository = if registry == DOCKER && !repository.contains('/') {
        format!("library/{repository}")
    } else {
        repository.to_owned()
    };
    Some(Image {
        registry,
        repository,
        tag: tag.or_else(|| digest.is_none().then_some("latest")),
        digest,
    })
}

/// Whether two references name the same image. One by digest and one by tag only do not: nothing here knows what a tag points to.
pub fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (Some(a), Some(b)) = (parse(a), parse(b)) else {
        return false;
    };
    let of_one_repository = a.registry == b.registry && a.repository == b.repository;
    of_one_repository
        && match (a.digest, b.digest) {
            (Some(x), Some(y)) => x == y,
            (None, None) => a.tag == b.tag,
            _ => false,
        }
}

/// The digest in a reference or an image id: `sha256:...`.
pub fn digest(reference: &str) -> Option<&str> {
    match reference.rsplit_once('@') {
        Some((_, digest)) => Some(digest),
        None => reference.starts_with("sha256:").then_some(reference),
    }
}

/// The ways in which one reference is commonly written, as it stands first.
pub fn spellings(reference: &str) -> Vec<String> {
    let mut forms = vec![reference.to_owned()];
    let Some(image) = parse(reference) else { return forms };
    let mut end = String::new();
    if let Some(tag) = image.tag {
        end.push(':');
        end.push_str(tag);
    }
    if let Some(digest) = image.digest {
        end.push('@');
        end.push_str(digest);
    }
    let mut names = vec![format!("{}/{}", image.registry, image.repository)];
    if image.registry == DOCKER {
        names.push(image.repository.clone());
        names.extend(image.repository.strip_prefix("library/").map(str::to_owned));
        names.extend(
            image
                .repository
                .strip_prefix("library/")
                .map(|n| format!("{DOCKER}/{n}")),
        );
    }
    for name in names {
        forms.push(format!("{name}{end}"));
        if image.tag == Some("latest") && image.digest.is_none() {
            forms.push(name);
        }
    }
    forms.sort_by_key(|form| form != reference);
    forms.dedup();
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sts_4_6_references_are_compared_after_normalisation() {
        for (a, b, expected) in [
            ("nginx", "docker.io/library/nginx:latest", true),
            ("nginx", "nginx:latest", true),
            ("index.docker.io/library/nginx:1", "nginx:1", true),
            ("docker.io/team/app:1", "team/app:1", true),
            ("docker.io/team/app:1", "team/app:2", false),
            ("registry.local:5000/app", "registry.local:5000/app:latest", true),
            ("registry.local:5000/app:1", "registry.local:5000/app", false),
            ("registry.local:5000/app:1", "registry.local/app:1", false),
            ("localhost/app:1", "app:1", false),
            ("app@sha256:aa", "docker.io/library/app@sha256:aa", true),
            ("app:1@sha256:aa", "app:2@sha256:aa", true),
            ("app@sha256:aa", "app@sha256:bb", false),
            ("app:1@sha256:aa", "app:1", false),
            ("docker-pullable://app@sha256:aa", "app@sha256:aa", true),
            ("", "latest", false),
            ("same nonsense", "same nonsense", true),
        ] {
            assert_eq!((same(a, b), same(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn digests_stand_behind_the_at_or_alone() {
        assert_eq!(digest("docker.io/library/app@sha256:aa"), Some("sha256:aa"));
        assert_eq!(digest("sha256:aa"), Some("sha256:aa"));
        assert_eq!(digest("app:1"), None);
    }

    #[test]
    fn spellings_of_one_reference_name_the_same_image() {
        for reference in ["nginx", "nginx:1", "team/app:1", "r.local:5000/a/b:2", "app@sha256:aa"] {
            let forms = spellings(reference);
            assert_eq!(forms[0], reference);
            assert!(forms.iter().all(|form| same(form, reference)), "{forms:?}");
        }
        assert!(spellings("nginx:1").contains(&"docker.io/library/nginx:1".to_owned()));
        assert!(spellings("docker.io/library/nginx").contains(&"nginx".to_owned()));
    }
}
