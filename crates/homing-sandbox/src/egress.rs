//! Decides which network addresses commands and tools may reach: only the public internet, unless the user allows more.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The set of addresses that may be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Only addresses of the public internet.
    #[default]
    Public,
    /// Every address, including this machine's and its local network's. Only if the user asked for it.
    Any,
}

impl Reach {
    /// Returns true if `address` may be reached.
    pub fn includes(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Public => match address {
                IpAddr::V4(address) => is_public_v4(address),
                IpAddr::V6(address) => is_public_v6(address),
            },
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 31, 196)
            | (192, 52, 193)
            | (192, 88, 99)
            | (192, 168, _)
            | (192, 175, 48)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !special
}

/// Global unicast, except ranges that embed an IPv4 address or lead through a tunnel.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global = (0x2000..=0x3fff).contains(&a);
    let special = matches!((a, b), (0x2001, 0..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, _));
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t13_only_public_addresses_are_reached() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::7f00:1",
        ] {
            assert!(!Reach::Public.includes(private.parse().unwrap()), "{private}");
            assert!(Reach::Any.includes(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert!(Reach::Public.includes(public.parse().unwrap()), "{public}");
        }
    }
}
