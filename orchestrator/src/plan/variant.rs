// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of variants: how much of a series a kernel holds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much of a series a kernel holds. In the order of building; as text
/// `base`, `patch-01`, `patch-02`, ..., `patched`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VariantName {
    /// Nothing of the series.
    Base,
    /// Its first patches, as many as this; fewer than all.
    Patch(u16),
    /// The whole series.
    Patched,
}

impl VariantName {
    /// The variant with the first `count` of `total` patches.
    #[must_use]
    pub fn prefix(count: usize, total: usize) -> Self {
        match u16::try_from(count) {
            Ok(0) => Self::Base,
            Ok(count) if usize::from(count) < total => Self::Patch(count),
            _ => Self::Patched,
        }
    }

    /// How many of `total` patches the variant holds.
    #[must_use]
    pub fn patches(self, total: usize) -> usize {
        match self {
            Self::Base => 0,
            Self::Patch(count) => usize::from(count),
            Self::Patched => total,
        }
    }

    /// Every prefix of a series of `total` patches, from `base` to `patched`.
    #[must_use]
    pub fn every(total: usize) -> Vec<Self> {
        // A series without a change has a patched variant, too.
        (0..=total.max(1)).map(|count| Self::prefix(count, total)).collect()
    }
}

impl fmt::Display for VariantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.pad("base"),
            Self::Patch(count) => f.pad(&format!("patch-{count:02}")),
            Self::Patched => f.pad("patched"),
        }
    }
}

impl FromStr for VariantName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = || text.strip_prefix("patch-")?.parse().ok().filter(|&count| count > 0);
        match text {
            "base" => Ok(Self::Base),
            "patched" => Ok(Self::Patched),
            _ => number()
                .map(Self::Patch)
                .ok_or_else(|| format!("{text:?} is no variant: base, patched, or patch-NN")),
        }
    }
}

impl Serialize for VariantName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VariantName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// `variants:` of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variants {
    /// These.
    List(Vec<VariantName>),
    /// Every prefix of each series.
    PerPatch,
}

impl Variants {
    /// The variants of a series of `total` patches, in the order of building.
    ///
    /// # Errors
    /// The first variant that such a series does not have.
    pub fn of(&self, total: usize) -> Result<Vec<VariantName>, VariantName> {
        let Self::List(names) = self else {
            return Ok(VariantName::every(total));
        };
        if let Some(&beyond) = names.iter().find(|name| name.patches(total) > total) {
            return Err(beyond);
        }
        // The last prefix goes by the name of the whole.
        let whole = |name: &VariantName| match name {
            VariantName::Patched => VariantName::Patched,
            name => VariantName::prefix(name.patches(total), total),
        };
        let mut variants: Vec<VariantName> = names.iter().map(whole).collect();
        variants.sort();
        variants.dedup();
        Ok(variants)
    }
}

impl<'de> Deserialize<'de> for Variants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Variants;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`per-patch`, or a list of base, patched and patch-NN")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Variants, E> {
                match text {
                    "per-patch" => Ok(Variants::PerPatch),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Variants, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Variants::List(names))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VariantName::{Base, Patch, Patched};
    use proptest::prelude::*;

    #[test]
    fn a_series_has_a_variant_for_each_prefix() {
        assert_eq!(VariantName::every(0), [Base, Patched]);
        assert_eq!(VariantName::every(1), [Base, Patched]);
        assert_eq!(VariantName::every(3), [Base, Patch(1), Patch(2), Patched]);
    }

    #[test]
    fn the_last_prefix_is_the_whole() {
        let list = |names: &[VariantName]| Variants::List(names.to_vec());
        assert_eq!(list(&[Patch(3), Base]).of(3), Ok(vec![Base, Patched]));
        assert_eq!(list(&[Patch(2), Patched]).of(3), Ok(vec![Patch(2), Patched]));
        assert_eq!(list(&[Base, Patch(4)]).of(3), Err(Patch(4)));
        assert_eq!(Variants::PerPatch.of(2), Ok(vec![Base, Patch(1), Patched]));
    }

    #[test]
    fn what_is_no_variant_is_refused() {
        for text in ["", "patch-", "patch-00", "patch--1", "patch-70000", "Base", "patches"] {
            assert!(text.parse::<VariantName>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_comes_back_from_its_text(count in 1u16..) {
            for name in [Base, Patch(count), Patched] {
                prop_assert_eq!(name.to_string().parse::<VariantName>(), Ok(name));
                let json = serde_json::to_string(&name).unwrap();
                prop_assert_eq!(serde_json::from_str::<VariantName>(&json).unwrap(), name);
            }
        }
    }
}
