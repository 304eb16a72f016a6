//! Requests of certificates (PKCS#10): of one only the key is of interest, and the proof that the sender
//! has it.
//!
//! Promises  A key that is returned is on the curve P-256, and the request was signed with it.
//! Not here  Names in the request: the controller decides what the certificate says.
//! Source    RFC 2986 (PKCS#10), RFC 5480 (keys on curves), X.690 (DER).

use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

/// A longer request is refused.
const MOST: usize = 4096;
/// What stands before the point in the key of this curve.
const KEY_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Octets of a point that is not compressed.
const POINT: usize = 65;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;

/// The key of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostKey(Vec<u8>);

impl PublicKeyData for HostKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The key for which a certificate is requested.
///
/// # Errors
///
/// What is wrong with the request.
pub(crate) fn key_of(request: &[u8]) -> Result<HostKey, &'static str> {
    if request.len() > MOST {
        return Err("it is longer than 4096 octets");
    }
    let mut all = Der(request);
    let mut whole = Der(all.element(SEQUENCE)?.content);
    all.end()?;
    let signed = whole.element(SEQUENCE)?;
    let mut info = Der(signed.content);
    info.element(INTEGER)?;
    // The subject.
    info.element(SEQUENCE)?;
    let key = info.element(SEQUENCE)?.whole;
    // The algorithm: a signature that it does not fit is wrong in any case.
    whole.element(SEQUENCE)?;
    let signature = whole.element(BITS)?.content;
    whole.end()?;
    let point = key.strip_prefix(&KEY_HEAD).filter(|point| point.len() == POINT);
    let point = point.ok_or("its key is not on the curve P-256")?;
    let signature = signature.strip_prefix(&[0]).ok_or("its signature is cut off")?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
        .verify(signed.whole, signature)
        .map_err(|_| "it is not signed with its key")?;
    Ok(HostKey(point.to_vec()))
}

/// Elements one after the other.
struct Der<'a>(&'a [u8]);

struct Element<'a> {
    /// With tag and length.
    whole: &'a [u8],
    content: &'a [u8],
}

impl<'a> Der<'a> {
    /// Takes the next element, which has to have this tag.
    fn element(&mut self, tag: u8) -> Result<Element<'a>, &'static str> {
        const NONE: &str = "it is no request of a certificate";
        let (head, length) = match *self.0 {
            [found, length, ..] if found == tag && length < 0x80 => (2, usize::from(length)),
            [found, 0x81, length, ..] if found == tag && length >= 0x80 => (3, usize::from(length)),
            [found, 0x82, high, low, ..] if found == tag && high > 0 => {
                (4, usize::from(high) << 8 | usize::from(low))
            }
            _ => return Err(NONE),
        };
        let whole = self.0.get(..head + length).ok_or(NONE)?;
        self.0 = &self.0[whole.len()..];
        Ok(Element { whole, content: &whole[head..] })
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err("something stands behind the request") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use weir_rpc::client::draw_key;

    #[test]
    fn the_key_of_a_request_is_that_of_its_sender() {
        let (key, request) = draw_key().expect("a key");
        let read = key_of(&request).expect("it was just made");
        assert_eq!(read.subject_public_key_info(), key.subject_public_key_info());
        // Names in it do not matter.
        let names = CertificateParams::new(vec!["h9.example.org".into()]).expect("a name");
        let request = names.serialize_request(&key).expect("made");
        assert_eq!(key_of(request.der()).expect("sound"), read);
    }

    #[test]
    fn a_request_that_is_changed_anywhere_is_refused_and_none_panics() {
        let (_, request) = draw_key().expect("a key");
        for at in 0..request.len() {
            let mut other = request.clone();
            other[at] ^= 1;
            // The algorithm is not read: the signature is that of one algorithm alone.
            let same = key_of(&other).is_ok_and(|key| key == key_of(&request).expect("sound"));
            assert!(key_of(&other).is_err() || same, "octet {at}");
            drop(key_of(&request[..at]));
            assert!(key_of(&request[..at]).is_err(), "cut off at {at}");
        }
        let longer = [&request[..], &[0]].concat();
        assert_eq!(key_of(&longer), Err("something stands behind the request"));
        assert_eq!(key_of(&vec![0x30; 5000]), Err("it is longer than 4096 octets"));
    }

    #[test]
    fn a_key_of_another_curve_is_refused() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
        let request = CertificateParams::default().serialize_request(&key).expect("made");
        assert_eq!(key_of(request.der()), Err("its key is not on the curve P-256"));
    }
}
