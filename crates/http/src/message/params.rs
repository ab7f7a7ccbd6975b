//! Parameters of a path as a value: a deserializer over names and texts.
//!
//! A struct or a map gets them by name, a tuple or a list in their order, and any other type the only one.

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;

/// Names and values, decoded.
pub(super) type Params<'p> = Vec<(&'p str, Cow<'p, str>)>;

/// Reads a value from the parameters of a path.
pub(super) fn read<T: DeserializeOwned>(params: Params<'_>) -> Result<T, Error> {
    T::deserialize(Whole(params))
}

/// All parameters.
struct Whole<'p>(Params<'p>);

impl<'p> Whole<'p> {
    /// Returns the only parameter.
    fn only(self) -> Result<Text<'p>, Error> {
        let count = self.0.len();
        match self.0.into_iter().next() {
            Some((_, text)) if count == 1 => Ok(Text(text)),
            _ => Err(Error::custom(format_args!("{count} parameters, and one value was asked for"))),
        }
    }
}

macro_rules! of_the_only_one {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.only()?.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Whole<'_> {
    type Error = Error;

    of_the_only_one! {
        deserialize_any deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_identifier deserialize_i8 deserialize_i16
        deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.into_iter().map(|(_, text)| Text(text))))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        if self.0.len() != count {
            let have = self.0.len();
            return Err(Error::custom(format_args!("{have} parameters, and {count} values were asked for")));
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(self.0.into_iter().map(|(name, text)| (name, Text(text)))))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// One parameter.
struct Text<'p>(Cow<'p, str>);

impl<'de, 'p> IntoDeserializer<'de, Error> for Text<'p> {
    type Deserializer = Text<'p>;

    fn into_deserializer(self) -> Text<'p> {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(Error::custom(format_args!("{:?} is no {}", self.0, $what))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Error;

    parsed! {
        deserialize_bool visit_bool bool, "`true` or `false`";
        deserialize_char visit_char char, "single character";
        deserialize_i8 visit_i8 i8, "number of 8 bits";
        deserialize_i16 visit_i16 i16, "number of 16 bits";
        deserialize_i32 visit_i32 i32, "number of 32 bits";
        deserialize_i64 visit_i64 i64, "number of 64 bits";
        deserialize_i128 visit_i128 i128, "number of 128 bits";
        deserialize_u8 visit_u8 u8, "number from 0 of 8 bits";
        deserialize_u16 visit_u16 u16, "number from 0 of 16 bits";
        deserialize_u32 visit_u32 u32, "number from 0 of 32 bits";
        deserialize_u64 visit_u64 u64, "number from 0 of 64 bits";
        deserialize_u128 visit_u128 u128, "number from 0 of 128 bits";
        deserialize_f32 visit_f32 f32, "number";
        deserialize_f64 visit_f64 f64, "number";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(&self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.as_ref().into_deserializer())
    }

    forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    fn params<'p>(pairs: &[(&'p str, &'p str)]) -> Params<'p> {
        pairs.iter().map(|(name, text)| (*name, Cow::Borrowed(*text))).collect()
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Book,
        Film,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Place {
        id: u64,
        kind: Kind,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Id(u64);

    #[test]
    fn parameters_become_structs_tuples_and_single_values() {
        let two = &[("kind", "film"), ("id", "7")];
        assert_eq!(read::<Place>(params(two)).unwrap(), Place { id: 7, kind: Kind::Film });
        assert_eq!(read::<(Kind, u8)>(params(two)).unwrap(), (Kind::Film, 7));
        let map: BTreeMap<String, String> = read(params(two)).unwrap();
        assert_eq!(map.get("id").map(String::as_str), Some("7"));
        assert_eq!(read::<Vec<String>>(params(two)).unwrap(), ["film", "7"]);
        let one = &[("id", "-3")];
        assert_eq!(read::<i32>(params(one)).unwrap(), -3);
        assert_eq!(read::<String>(params(one)).unwrap(), "-3");
        assert_eq!(read::<Option<String>>(params(one)).unwrap().as_deref(), Some("-3"));
        assert_eq!(read::<Id>(params(&[("id", "3")])).unwrap(), Id(3));
        assert_eq!(read::<Kind>(params(&[("kind", "book")])).unwrap(), Kind::Book);
    }

    #[test]
    fn what_is_no_such_value_is_named() {
        let why = |result: Result<u64, Error>| result.unwrap_err().to_string();
        assert_eq!(why(read(params(&[("id", "-3")]))), "\"-3\" is no number from 0 of 64 bits");
        assert!(why(read(params(&[]))).starts_with("0 parameters"));
        assert!(why(read(params(&[("a", "1"), ("b", "2")]))).starts_with("2 parameters"));
        assert!(read::<(u8, u8)>(params(&[("a", "1")])).is_err());
        assert!(read::<Kind>(params(&[("kind", "song")])).is_err());
    }
}
