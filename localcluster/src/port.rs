//! Ports for programs that are started with a number.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below these are the ports of well-known services.
const FIRST: u16 = 10_000;
/// What Linux gives to connections if it has not been told otherwise.
const GIVEN_FROM: u16 = 32_768;

/// A loopback port that nobody uses now, and that the kernel gives to no connection: whoever is started with it finds it free unless another
/// program is told the same number. A port that the kernel picks may be some connection's own end by then, and on a busy machine it is.
///
/// # Errors
/// If every port is taken.
pub fn free_port() -> io::Result<u16> {
    // No two of this process are the same, even before anybody listens there; those of two processes begin at random places.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    static BEGUN: OnceLock<u64> = OnceLock::new();
    let range = ours(
        fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
            .ok()
            .as_deref(),
    );
    let begun = *BEGUN.get_or_init(|| RandomState::new().hash_one(()));
    for _ in range.clone() {
        let port = nth(&range, begun, TAKEN.fetch_add(1, Ordering::Relaxed));
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all ports of 127.0.0.1 from {} to {} are taken", range.start, range.end),
    ))
}

/// Whether nobody listens on a loopback port.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// The ports below those that the kernel gives to connections, by what it says of these.
fn ours(given: Option<&str>) -> Range<u16> {
    let from = given.and_then(|text| text.split_whitespace().next()?.parse().ok());
    // Where the kernel gives nearly all, a clash is as likely anywhere.
    let end = from.filter(|from| *from > FIRST + 1000).unwrap_or(GIVEN_FROM);
    FIRST..end
}

fn nth(range: &Range<u16>, begun: u64, index: u16) -> u16 {
    let place = begun.wrapping_add(index.into()) % (range.len() as u64);
    // Less than the length of a range of ports.
    range.start + u16::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_of_one_process_differ_before_anybody_listens() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
    }

    #[test]
    fn no_port_is_one_that_the_kernel_gives_to_connections() {
        assert_eq!(ours(Some("32768\t60999\n")), 10_000..32_768);
        assert_eq!(ours(Some("20000 60999")), 10_000..20_000);
        assert_eq!(ours(Some("1024 65535")), 10_000..32_768, "then there is none");
        assert_eq!(ours(None), 10_000..32_768);
        let range = 10_000..10_003;
        let all: Vec<u16> = (0..4).map(|index| nth(&range, u64::MAX - 1, index)).collect();
        assert!(all.iter().all(|port| range.contains(port)), "{all:?}");
    }

    #[test]
    fn a_busy_port_is_noticed() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        drop(taken);
        assert!(is_free(port));
    }
}
