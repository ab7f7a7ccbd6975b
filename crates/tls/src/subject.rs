//! The subject of a certificate as text (RFC 4514).
//!
//! The text is the value of a header line: it is visible ASCII, and nothing in a value can be taken for
//! another attribute. Start at [`text`].

use x509_parser::asn1_rs::{Tag, ToDer};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Returns the text of a name, the most specific part first. What is not visible ASCII is written as `\` and
/// two digits.
pub(crate) fn text(name: &X509Name<'_>) -> Box<str> {
    let mut text = String::new();
    for part in name.iter_rdn().collect::<Vec<_>>().into_iter().rev() {
        for (at, attribute) in part.iter().enumerate() {
            text.push_str(match (text.is_empty(), at) {
                (true, _) => "",
                (_, 0) => ",",
                (_, _) => "+",
            });
            let id = attribute.attr_type().to_id_string();
            let short = short_name(&id);
            text.push_str(short.unwrap_or(&id));
            text.push('=');
            // RFC 4514 §2.4: a type in dotted digits has its value as bytes, and so has a value that is not a
            // string.
            match short.and_then(|_| string(attribute)) {
                Some(value) => escape(&value, &mut text),
                None => hex(attribute, &mut text),
            }
        }
    }
    text.into()
}

/// Returns the value of an attribute, if it is a string with a known set of characters.
fn string(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let bytes = attribute.as_slice();
    match attribute.attr_value().tag() {
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            let value = char::decode_utf16(units).collect::<Result<String, _>>().ok();
            value.filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (characters, rest) = bytes.as_chunks::<4>();
            let value = characters.iter().map(|one| char::from_u32(u32::from_be_bytes(*one))).collect();
            Option::filter(value, |_: &String| rest.is_empty())
        }
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

/// Writes `#` and the hexadecimal digits of the whole encoded value: tag, length and contents.
fn hex(attribute: &AttributeTypeAndValue<'_>, text: &mut String) {
    text.push('#');
    // Writing to memory does not fail.
    let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
    bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02X}")));
}

/// Returns the registered short name of an attribute type: those of RFC 4514 §3, those of RFC 4519 that
/// subjects have, and that of mail addresses (RFC 2985).
fn short_name(id: &str) -> Option<&'static str> {
    Some(match id {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.13" => "description",
        "2.5.4.17" => "postalCode",
        "2.5.4.42" => "givenName",
        "2.5.4.43" => "initials",
        "2.5.4.44" => "generationQualifier",
        "2.5.4.46" => "dnQualifier",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return None,
    })
}

/// Writes a value so that nothing in it can be taken for another attribute (RFC 4514 §2.4).
fn escape(value: &str, text: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'#' | b' ' if at == 0 => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' ' if at == last => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            other => text.push_str(&format!("\\{other:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use x509_parser::prelude::FromDer;

    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const TELETEX: u8 = 0x14;
    const IA5: u8 = 0x16;
    const UNIVERSAL: u8 = 0x1c;
    const BMP: u8 = 0x1e;
    const OCTETS: u8 = 0x04;

    const CN: &[u8] = &[0x55, 4, 3];
    const OU: &[u8] = &[0x55, 4, 11];
    const UID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];
    const DC: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
    /// 1.3.6.1.4.1.1466.0, of RFC 4514's examples.
    const EXAMPLE: &[u8] = &[0x2b, 6, 1, 4, 1, 0x8b, 0x3a, 0];

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()][..], content].concat()
    }

    type Attribute<'a> = (&'a [u8], u8, &'a [u8]);

    /// Returns the text of a name of these parts, as it is encoded: the least specific one first.
    fn written(parts: &[&[Attribute<'_>]]) -> String {
        let one = |(id, tag, value): &Attribute<'_>| der(0x30, &[der(6, id), der(*tag, value)].concat());
        let part = |all: &&[Attribute<'_>]| der(0x31, &all.iter().flat_map(one).collect::<Vec<_>>());
        let name = der(0x30, &parts.iter().flat_map(part).collect::<Vec<_>>());
        let (rest, name) = X509Name::from_der(&name).unwrap();
        assert!(rest.is_empty());
        text(&name).into()
    }

    fn common_name(tag: u8, value: &[u8]) -> String {
        let net: &[Attribute<'_>] = &[(DC, IA5, b"net")];
        written(&[net, &[(DC, IA5, b"example")], &[(CN, tag, value)]])
    }

    #[test]
    fn the_examples_of_rfc_4514_are_written_as_there() {
        let (net, example): (&[Attribute<'_>], &[Attribute<'_>]) =
            (&[(DC, IA5, b"net")], &[(DC, IA5, b"example")]);
        assert_eq!(written(&[net, example, &[(UID, UTF8, b"jsmith")]]), "UID=jsmith,DC=example,DC=net");
        let sales: &[Attribute<'_>] = &[(OU, PRINTABLE, b"Sales"), (CN, PRINTABLE, b"J.  Smith")];
        assert_eq!(written(&[net, example, sales]), "OU=Sales+CN=J.  Smith,DC=example,DC=net");
        assert_eq!(
            common_name(UTF8, b"James \"Jim\" Smith, III"),
            r#"CN=James \"Jim\" Smith\, III,DC=example,DC=net"#
        );
        assert_eq!(common_name(UTF8, b"Before\rAfter"), r"CN=Before\0DAfter,DC=example,DC=net");
        assert_eq!(written(&[&[(EXAMPLE, OCTETS, b"Hi")]]), "1.3.6.1.4.1.1466.0=#04024869");
        assert_eq!(written(&[&[(CN, UTF8, "Lu\u{10d}i\u{107}".as_bytes())]]), r"CN=Lu\C4\8Di\C4\87");
    }

    #[test]
    fn a_type_without_a_name_has_the_bytes_of_its_value_whatever_that_is() {
        assert_eq!(written(&[&[(EXAMPLE, UTF8, b"CN=a")]]), "1.3.6.1.4.1.1466.0=#0C04434E3D61");
        assert_eq!(written(&[&[(CN, OCTETS, &[b'x'; 100])]]), format!("CN=#0464{}", "78".repeat(100)));
    }

    #[test]
    fn strings_of_two_and_four_bytes_are_read_and_what_is_none_keeps_its_bytes() {
        assert_eq!(common_name(BMP, b"\0A\x01\x0d"), r"CN=A\C4\8D,DC=example,DC=net");
        assert_eq!(common_name(UNIVERSAL, b"\0\0\0A\0\x01\xf6\0"), r"CN=A\F0\9F\98\80,DC=example,DC=net");
        for (tag, value, digits) in [
            // Half a character, and one half of a pair.
            (BMP, &b"\0A\x01"[..], "1E03004101"),
            (BMP, b"\xd8\0", "1E02D800"),
            (UNIVERSAL, b"\0\x11\0\0", "1C0400110000"),
            (UTF8, b"\xff", "0C01FF"),
            (TELETEX, b"\xe4", "1401E4"),
        ] {
            assert_eq!(common_name(tag, value), format!("CN=#{digits},DC=example,DC=net"));
        }
    }

    #[test]
    fn blanks_and_signs_at_the_edges_are_escaped() {
        for (value, expected) in [
            ("", ""),
            (" ", "\\ "),
            ("  ", "\\ \\ "),
            ("#a#", "\\#a#"),
            (" a b ", "\\ a b\\ "),
            ("\0", "\\00"),
        ] {
            assert_eq!(written(&[&[(CN, UTF8, value.as_bytes())]]), format!("CN={expected}"));
        }
    }
}
