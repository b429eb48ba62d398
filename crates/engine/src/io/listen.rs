//! Taking an address to serve on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Takes the address. The unspecified one of IPv6, `[::]`, stands for all addresses of either family, as Linux has it unless
/// `net.ipv6.bindv6only` is set; where there is no IPv6, for all of IPv4. So one address fits clusters of IPv4, of IPv6 and of both.
///
/// # Errors
/// If it is not to be had.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_by(address, TcpListener::bind)
}

fn bind_by<L>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<L>) -> io::Result<L> {
    match bind(address) {
        Err(error) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && is_without_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}

/// Whether the kernel knows no IPv6, or has been told to use none.
fn is_without_ipv6(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn either_family_gets_in_where_all_addresses_are_asked_for() {
        let listener = bind((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn without_ipv6_all_of_ipv4_is_taken_and_nothing_that_was_not_asked_for() {
        let without = |address: SocketAddr| match address {
            SocketAddr::V6(_) => Err(io::Error::from_raw_os_error(97)),
            SocketAddr::V4(address) => Ok(address.to_string()),
        };
        assert_eq!(bind_by("[::]:80".parse().unwrap(), without).unwrap(), "0.0.0.0:80");
        assert!(
            bind_by("[::1]:80".parse().unwrap(), without).is_err(),
            "one address is that address"
        );
        let taken = |_| Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse));
        let error = bind_by("[::]:80".parse().unwrap(), taken).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
