//! Names of pods in DNS, and whom they ask for others.

use super::{each, one_of, text};
use crate::field::Error;
use crate::names;
use serde_json::{Value, json};
use std::net::IpAddr;

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

pub(super) fn check(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    dns(spec, path, errors);
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            let wrong = names::dns_label(name).into_iter();
            errors.extend(wrong.map(|why| Error::invalid(format!("{path}.{field}"), json!(name), why)));
        }
    }
    for (index, alias) in each(spec, "hostAliases").enumerate() {
        let path = format!("{path}.hostAliases[{index}]");
        address(text(alias, "ip"), || format!("{path}.ip"), errors);
        for (index, name) in each(alias, "hostnames").filter_map(Value::as_str).enumerate() {
            let path = format!("{path}.hostnames[{index}]");
            let wrong = names::dns_subdomain(name).into_iter();
            errors.extend(wrong.map(|why| Error::invalid(path.as_str(), json!(name), why)));
        }
    }
}

fn dns(spec: &Value, path: &str, errors: &mut Vec<Error>) {
    let policy = text(spec, "dnsPolicy");
    one_of(policy, &DNS_POLICIES, || format!("{path}.dnsPolicy"), errors);
    let (config, path) = (&spec["dnsConfig"], format!("{path}.dnsConfig"));
    if policy == "None" {
        if !config.is_object() {
            errors.push(Error::required(
                path,
                "must provide `dnsConfig` when `dnsPolicy` is None",
            ));
            return;
        }
        if each(config, "nameservers").next().is_none() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(Error::required(format!("{path}.nameservers"), why));
            return;
        }
    }
    for (index, server) in each(config, "nameservers").filter_map(Value::as_str).enumerate() {
        address(server, || format!("{path}.nameservers[{index}]"), errors);
    }
}

fn address(text: &str, path: impl Fn() -> String, errors: &mut Vec<Error>) {
    if !is_address(text) {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(Error::invalid(path(), json!(text), why));
    }
}

/// Zeros before a number were always allowed here, and still are.
fn is_address(text: &str) -> bool {
    let (head, numbers) = text.rsplit_once(':').map_or(("", text), |_| {
        let at = text.rfind(':').map_or(0, |at| at + 1);
        text.split_at(at)
    });
    let bare = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        digits => digits.to_owned(),
    };
    let numbers: Vec<String> = numbers.split('.').map(bare).collect();
    let is_plain = text.parse::<IpAddr>().is_ok();
    is_plain || numbers.len() == 4 && format!("{head}{}", numbers.join(".")).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn addresses_are_read_as_go_reads_them_where_they_are_old() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("010.000.0.01", true),
            ("2001:db8::1", true),
            ("::ffff:10.0.0.01", true),
            ("10.0.0", false),
            ("10.0.0.256", false),
            ("10..0.1", false),
            ("fe80::1%eth0", false),
            ("localhost", false),
            ("", false),
        ] {
            assert_eq!(is_address(text), expected, "{text}");
        }
    }
}
