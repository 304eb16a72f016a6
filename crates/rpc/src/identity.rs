//! Whose certificate one is.
//!
//! A host's certificate has one URI as its name: `weir:host:NAME:ENROLMENT:UNTIL`. The enrolment is the
//! version of the controller's objects at which the host joined: a host that joins again has a larger
//! one, and certificates of the former are worthless from then on. `UNTIL` repeats the end of the
//! certificate in milliseconds since 1970, so that nobody has to read its date.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use weir_model::moment::Moment;

/// Whose certificate one is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// Name of the host.
    pub host: String,
    /// Which of its joins the certificate is of.
    pub enrolment: u64,
    /// When the certificate ends.
    pub until: Moment,
}

impl Identity {
    /// The name in the certificate.
    pub fn uri(&self) -> String {
        format!("weir:host:{}:{}:{}", self.host, self.enrolment, self.until.as_millis())
    }

    /// Reads the name in a certificate whose signature is known to be good; `None` if it is no host's.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        certificate.valid_uri_names().find_map(Self::parse)
    }

    fn parse(uri: &str) -> Option<Self> {
        let mut words = uri.strip_prefix("weir:host:")?.split(':');
        let host = words.next().filter(|host| !host.is_empty())?.to_owned();
        let enrolment = words.next()?.parse().ok()?;
        let until = Moment::from_millis(words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { host, enrolment, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_others_are_no_hosts() {
        let until = Moment::from_millis(1_800_000_000_000);
        let identity = Identity { host: "rack-1.h_2".into(), enrolment: 17, until };
        assert_eq!(Identity::parse(&identity.uri()), Some(identity));
        for other in [
            "weir:host:a:1",
            "weir:host::1:2",
            "weir:host:a:x:2",
            "weir:host:a:1:2:3",
            "weir:controller:a:1:2",
            "https://a",
        ] {
            assert_eq!(Identity::parse(other), None, "{other}");
        }
    }
}
