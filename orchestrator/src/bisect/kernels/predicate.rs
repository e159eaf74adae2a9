// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is called bad.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault::{Fault, escape};

/// The threshold of a counted figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Past {
    /// Half way between the ends.
    HalfWay,
    /// Percent above the good end's figure; below it when negative.
    Percent(f64),
    /// More than this, in the figure's unit.
    Above(f64),
    /// Less than this.
    Below(f64),
}

/// What is called bad.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// An observation has a value.
    Observation {
        /// Its name.
        name: String,
        /// The value that is bad; none for that of the bad end.
        value: Option<String>,
    },
    /// A counted figure is past a threshold.
    Metric {
        /// Its name.
        name: String,
        /// What distinguishes it from others of that name; those that are not given
        /// may be anything, as long as only one figure fits.
        parameters: BTreeMap<String, String>,
        /// The threshold.
        past: Past,
    },
    /// A splat shows: its fingerprint, or its title, in which `*` stands for any text.
    Splat(String),
    /// It does not build.
    Build,
    /// The test fails as at the bad end, or the kernel does.
    Fail,
}

impl Predicate {
    /// Reads `NAME[=VALUE]`.
    ///
    /// # Errors
    /// A `plan` fault when there is no name.
    pub fn observation(text: &str) -> Result<Self, Fault> {
        // Names of results may hold `=`, values of observations seldom do.
        let (name, value) = match text.rsplit_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || value.as_ref().is_some_and(String::is_empty) {
            return Err(Fault::plan(format!("{text:?} is no observation"))
                .help("write --observation NAME, or NAME=VALUE with the value that is bad"));
        }
        Ok(Self::Observation { name: name.to_owned(), value })
    }

    /// Reads `NAME[{k=v,...}]`, and after it `:PERCENT`, `>VALUE`, `<VALUE` or nothing.
    ///
    /// # Errors
    /// A `plan` fault that says what is wrong.
    pub fn metric(text: &str) -> Result<Self, Fault> {
        let wrong = |what: &str| {
            Fault::plan(format!("{text:?}: {what}")).help(
                "write --metric NAME or NAME{parameter=value,...}, and after it :PERCENT, \
                 '>VALUE', '<VALUE' or nothing",
            )
        };
        let (name, rest) = match text.find(['{', ':', '<', '>']) {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let (braces, past) = match rest.strip_prefix('{') {
            Some(inner) => {
                let (inner, after) =
                    inner.rsplit_once('}').ok_or_else(|| wrong("a { without its }"))?;
                (inner, after)
            }
            None => ("", rest),
        };
        let parameters = braces.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| wrong("parameters are NAME=VALUE, parted by commas"))?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        });
        let parameters = parameters.collect::<Result<BTreeMap<String, String>, Fault>>()?;
        let number =
            |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        let value = |text: &str| number(text).ok_or_else(|| wrong("the threshold is no number"));
        let past = match (past.chars().next(), past.get(1..)) {
            (Some('>'), Some(text)) => Past::Above(value(text)?),
            (Some('<'), Some(text)) => Past::Below(value(text)?),
            (Some(':'), Some(text)) => {
                let percent = number(text.trim_end_matches('%'))
                    .ok_or_else(|| wrong("the percent are no number"))?;
                if percent == 0.0 || percent <= -100.0 {
                    return Err(wrong("the percent are below or above 0, and above -100"));
                }
                Past::Percent(percent)
            }
            (None, _) => Past::HalfWay,
            _ => return Err(wrong("after the } comes a threshold or nothing")),
        };
        if name.is_empty() {
            return Err(wrong("no name"));
        }
        Ok(Self::Metric { name: name.to_owned(), parameters, past })
    }

    /// Whether kernels have to be booted for it.
    #[must_use]
    pub fn boots(&self) -> bool {
        *self != Self::Build
    }

    /// Whether it says what is bad without a look at the ends.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        match self {
            Self::Observation { value, .. } => value.is_some(),
            Self::Metric { past, .. } => matches!(past, Past::Above(_) | Past::Below(_)),
            Self::Splat(_) | Self::Build | Self::Fail => true,
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observation { name, value: Some(value) } => {
                write!(f, "{} is {}", escape(name), escape(value))
            }
            Self::Observation { name, value: None } => {
                write!(f, "{} is what it is at the bad end", escape(name))
            }
            Self::Metric { name, parameters, past } => {
                f.write_str(&escape(name))?;
                if !parameters.is_empty() {
                    let pairs: Vec<String> =
                        parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    write!(f, "{{{}}}", escape(&pairs.join(",")))?;
                }
                match past {
                    Past::HalfWay => f.write_str(" is nearer to the bad end's figure"),
                    Past::Percent(percent) if *percent > 0.0 => {
                        write!(f, " is more than {percent}% above the good end's")
                    }
                    Past::Percent(percent) => {
                        write!(f, " is more than {}% below the good end's", -percent)
                    }
                    Past::Above(value) => write!(f, " is above {value}"),
                    Past::Below(value) => write!(f, " is below {value}"),
                }
            }
            Self::Splat(pattern) => write!(f, "the splat {:?} shows", escape(pattern)),
            Self::Build => f.write_str("it does not build"),
            Self::Fail => f.write_str("the test fails"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn metrics_are_read_with_parameters_and_percent() {
        let read = |text| Predicate::metric(text).map(|found| found.to_string());
        assert_eq!(read("madvise").unwrap(), "madvise is nearer to the bad end's figure");
        assert_eq!(
            read("madvise{pages=512, advice=cold}:3%").unwrap(),
            "madvise{advice=cold,pages=512} is more than 3% above the good end's"
        );
        assert_eq!(read("m:-0.5").unwrap(), "m is more than 0.5% below the good end's");
        assert_eq!(read("m>12e3").unwrap(), "m is above 12000");
        assert_eq!(read("m{a=1}< -0.5").unwrap(), "m{a=1} is below -0.5");
        for wrong in [
            "", ":3", "m:", "m:x", "m:0", "m:inf", "m{a}:1", "m{a=1", "m{a=1}3", "m:-100", "m>",
            "m<x", ">1", "m>nan", "m{a=1}é",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_threshold_of_its_own_needs_no_ends() {
        let absolute = |text| Predicate::metric(text).unwrap().is_absolute();
        assert!(absolute("m>3") && absolute("m{a=1}<3"));
        assert!(!absolute("m") && !absolute("m:3"));
    }

    #[test]
    fn observations_may_have_a_value() {
        let read = |text| Predicate::observation(text).map(|found| found.to_string());
        assert_eq!(read("kicks=9").unwrap(), "kicks is 9");
        assert_eq!(read("map(len=4)=not ok").unwrap(), "map(len=4) is not ok");
        assert_eq!(read("kicks").unwrap(), "kicks is what it is at the bad end");
        for wrong in ["", "=", "a=", "=b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(text in "\\PC{0,40}") {
            let _ = (Predicate::metric(&text), Predicate::observation(&text));
        }
    }
}
