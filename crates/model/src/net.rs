//! Addresses as people write them: prefixes and MAC addresses.
//!
//! Problem   A directory names ranges of addresses, and a port the one MAC address behind it; a
//!           slip in either opens or closes the wrong thing.
//! Approach  Parsed once, at the edge; what is shown parses back to the same.
//! Promises  A [`Prefix`] has no bits behind its length; a [`Mac`] is that of one interface.
//! Not here  Sockets' addresses, which the standard library has.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that begin alike: `203.0.113.0/24`, `::/0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    first: IpAddr,
    length: u8,
}

impl Prefix {
    /// The first address.
    pub const fn first(self) -> IpAddr {
        self.first
    }

    /// How many bits its addresses have in common.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Whether an address is one of them.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(a)) => {
                (first.to_bits() ^ a.to_bits()) & mask4(self.length) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(a)) => {
                (first.to_bits() ^ a.to_bits()) & mask6(self.length) == 0
            }
            _ => false,
        }
    }
}

fn mask4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a prefix: write 203.0.113.0/24 or 2001:db8::/32");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let first = match address {
            IpAddr::V4(a) if length <= 32 => {
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask4(length)))
            }
            IpAddr::V6(a) if length <= 128 => {
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask6(length)))
            }
            _ => return Err(wrong()),
        };
        if first != address {
            return Err(format!("`{text}` has bits behind its length: write {first}/{length}"));
        }
        Ok(Self { first, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

/// The address of one interface on layer 2: `02:57:00:01:00:07`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a MAC address: write 02:57:00:01:00:07");
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        if octets[0] & 1 == 1 || octets == [0; 6] {
            return Err(format!("`{text}` is the MAC address of no interface: groups begin so"));
        }
        Ok(Self(octets))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(Prefix, Mac);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_parses_back() {
        for text in ["0.0.0.0/0", "203.0.113.0/24", "10.1.2.3/32", "::/0", "2001:db8::/32"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("02:57:00:01:00:ff".parse::<Mac>().unwrap().to_string(), "02:57:00:01:00:ff");
    }

    #[test]
    fn a_prefix_contains_what_begins_alike_in_its_family() {
        let holds = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap())
        };
        assert!(holds("203.0.113.0/24", "203.0.113.255"));
        assert!(!holds("203.0.113.0/24", "203.0.114.0"));
        assert!(holds("0.0.0.0/0", "255.1.2.3"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!holds("10.0.0.1/32", "10.0.0.2"));
        assert!(!holds("::/0", "10.0.0.2"));
    }

    #[test]
    fn a_slip_is_named_with_what_would_be_right() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap_err();
        assert!(prefix("10.0.0.0").contains("write 203.0.113.0/24"));
        assert!(prefix("10.0.0.0/33").contains("is not a prefix"));
        assert!(prefix("::/129").contains("is not a prefix"));
        assert_eq!(
            prefix("10.0.0.1/8"),
            "`10.0.0.1/8` has bits behind its length: write 10.0.0.0/8"
        );
        let mac = |text: &str| text.parse::<Mac>().unwrap_err();
        for text in
            ["", "02:57:00:01:00", "02:57:00:01:00:07:08", "2:57:0:1:0:7", "02-57-00-01-00-07"]
        {
            assert!(mac(text).contains("is not a MAC address"), "{text}");
        }
        for text in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert!(mac(text).contains("of no interface"), "{text}");
        }
    }
}
