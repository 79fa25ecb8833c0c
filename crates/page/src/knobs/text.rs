//! Values of knobs as they are written in settings: read, refused with the reason, and shown.

use core::fmt;

use super::{Declared, Kind};

/// Why a text is no value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is no number of bytes.
    NotSize,
    /// It is no number.
    NotNumber,
    /// It is less than the knob takes, which is this number.
    Below(u64),
    /// It is more than the knob takes, which is this number.
    Above(u64),
    /// It is less than the knob takes, which is this.
    Less(u64),
    /// It is more than the knob takes, which is this.
    More(u64),
    /// It is neither on nor off.
    NotSwitch,
    /// It is none of these words.
    NotOneOf(&'static [&'static str]),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSize => f.write_str("not a size: a whole number, alone or with K, M or G"),
            Self::NotNumber => f.write_str("not a whole number"),
            Self::Below(least) => write!(f, "less than {least}"),
            Self::Above(most) => write!(f, "more than {most}"),
            Self::Less(least) => write!(f, "less than {}", Size(*least)),
            Self::More(most) => write!(f, "more than {}", Size(*most)),
            Self::NotSwitch => f.write_str("neither 0 nor 1"),
            Self::NotOneOf(words) => {
                f.write_str("not one of")?;
                words.iter().try_for_each(|word| write!(f, " {word}"))
            }
        }
    }
}

/// A number of bytes as it is written in a setting.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let fits = |shift: u32| self.0 != 0 && self.0 % (1 << shift) == 0;
        match units.into_iter().find(|(shift, _)| fits(*shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number of bytes, alone or with K, M or G; a larger number than 64 bits can hold is their largest one.
fn size(text: &[u8]) -> Result<u64, Bad> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let shift = match &text[digits..] {
        b"" => 0,
        b"K" | b"k" => 10,
        b"M" | b"m" => 20,
        b"G" | b"g" => 30,
        _ => return Err(Bad::NotSize),
    };
    let number = number(&text[..digits]).ok_or(Bad::NotSize)?;
    Ok(number.saturating_mul(1 << shift))
}

/// A number in decimal digits; a larger number than 64 bits can hold is their largest one.
fn number(text: &[u8]) -> Option<u64> {
    let add = |n: u64, digit: &u8| n.saturating_mul(10).saturating_add((digit - b'0') as u64);
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, add))
}

impl Declared {
    /// The value that a text stands for, whatever the range; 0 for a [`Kind::Text`].
    pub(super) fn read(&self, text: &[u8]) -> Result<u64, Bad> {
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        match self.kind {
            Kind::Bytes(..) => size(text),
            Kind::Number(..) => number(text).ok_or(Bad::NotNumber),
            Kind::Switch if is(&["0", "off", "no", "false"]) => Ok(0),
            Kind::Switch if is(&["1", "on", "yes", "true"]) => Ok(1),
            Kind::Switch => Err(Bad::NotSwitch),
            Kind::Choice(words) => {
                let place = words.iter().position(|word| text == word.as_bytes());
                place.map(|place| place as u64).ok_or(Bad::NotOneOf(words))
            }
            Kind::Text => Ok(0),
        }
    }

    /// The value that a text stands for.
    pub fn parse(&self, text: &[u8]) -> Result<u64, Bad> {
        let (value, (least, most)) = (self.read(text)?, self.range());
        match self.kind {
            Kind::Number(..) if value < least => Err(Bad::Below(least)),
            Kind::Number(..) if value > most => Err(Bad::Above(most)),
            _ if value < least => Err(Bad::Less(least)),
            _ if value > most => Err(Bad::More(most)),
            _ => Ok(value),
        }
    }

    /// The nearest value to what a text stands for, for a process that cannot complain to its user. A switch is on
    /// when it is not off; another text that stands for nothing counts as none.
    pub fn nearest(&self, text: &[u8]) -> Option<u64> {
        let (least, most) = self.range();
        match self.read(text) {
            Ok(value) => Some(value.clamp(least, most)),
            Err(Bad::NotSwitch) => Some(1),
            Err(_) => None,
        }
    }

    /// A value as it is written in a setting.
    pub fn show(&self, value: u64) -> impl fmt::Display + use<> {
        Shown(self.kind, value)
    }
}

struct Shown(Kind, u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Bytes(..) => Size(self.1).fmt(f),
            Kind::Choice(words) => f.write_str(words.get(self.1 as usize).unwrap_or(&"?")),
            Kind::Switch | Kind::Number(..) => self.1.fmt(f),
            Kind::Text => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Knob, MOST, MOST_ORDER, ORDERS, slot_order};
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn sizes_are_read_and_refused() {
        let budget = Knob::Budget.declared();
        let good = [("0", 0), ("123", 123), ("1K", 1 << 10), ("3k", 3 << 10), ("64M", 64 << 20), ("2G", 2 << 30)];
        for (text, bytes) in good {
            assert_eq!(budget.parse(text.as_bytes()), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "+1", "1.5G", "1T", "1KB", "1 K", " 1", "0x10", "1é", "M1"] {
            assert_eq!(budget.parse(text.as_bytes()), Err(Bad::NotSize), "{text}");
            assert_eq!(budget.nearest(text.as_bytes()), None, "{text}");
        }
        for text in ["99999999999999999999", "18014398509481984K", "64G64"] {
            assert!(budget.parse(text.as_bytes()).is_err(), "{text}");
        }
        let threshold = Knob::MallocThreshold.declared();
        assert_eq!(threshold.parse(b"63K"), Err(Bad::Less(64 << 10)));
        assert_eq!(Bad::Less(64 << 10).to_string(), "less than 64K");
        assert_eq!(threshold.nearest(b"63K"), Some(64 << 10));
        assert_eq!(threshold.nearest(b"99999999999999999999"), Some(MOST));
    }

    #[test]
    fn numbers_are_read_and_refused() {
        let (start, load) = (Knob::ScrubStart.declared(), Knob::ScrubLoad.declared());
        assert_eq!((start.parse(b"9"), start.parse(b"28"), load.parse(b"0")), (Ok(9), Ok(28), Ok(0)));
        assert_eq!((start.parse(b"8"), start.parse(b"29")), (Err(Bad::Below(9)), Err(Bad::Above(28))));
        assert_eq!((load.parse(b"1.5"), load.parse(b"")), (Err(Bad::NotNumber), Err(Bad::NotNumber)));
        assert_eq!((start.nearest(b"1"), load.nearest(b"5000"), load.nearest(b"x")), (Some(9), Some(999), None));
        assert_eq!(
            (load.show(999).to_string(), Bad::Above(28).to_string()),
            ("999".into(), "more than 28".into())
        );
        assert_eq!((slot_order(9), slot_order(MOST_ORDER)), (0, ORDERS as usize - 1));
    }

    #[test]
    fn switches_and_words_are_read_and_shown() {
        let (scrub, by) = (Knob::Scrub.declared(), Knob::PrefaultBy.declared());
        let values = [("0", 0), ("off", 0), ("No", 0), ("1", 1), ("on", 1), ("TRUE", 1)];
        assert!(values.iter().all(|(text, value)| scrub.parse(text.as_bytes()) == Ok(*value)));
        assert_eq!((scrub.parse(b"2"), scrub.nearest(b"2")), (Err(Bad::NotSwitch), Some(1)));
        assert_eq!((by.parse(b"thread"), by.nearest(b"lax")), (Ok(1), None));
        assert_eq!(by.show(1).to_string(), "thread");
        assert_eq!(by.parse(b"lax").unwrap_err().to_string(), "not one of area thread one");
        let shown = [(0, "0"), (1000, "1000"), (3 << 10, "3K"), (256 << 20, "256M"), (2 << 40, "2048G")];
        assert!(shown.iter().all(|(bytes, text)| Size(*bytes).to_string() == *text));
    }

    const VALUES: &[&str] =
        &["64M", "1e9", "-1", "0", "2G", "18446744073709551615", "17179869184G", "on", "thread", "9"];

    /// A size, digit by digit.
    fn naive(text: &[u8]) -> Option<u128> {
        let text = core::str::from_utf8(text).ok()?;
        let (digits, unit) = match text.bytes().last()?.to_ascii_uppercase() {
            b'K' => (&text[..text.len() - 1], 1 << 10),
            b'M' => (&text[..text.len() - 1], 1 << 20),
            b'G' => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 1),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let add = |n: u128, digit: u8| n.saturating_mul(10).saturating_add((digit - b'0').into());
        is_number.then(|| digits.bytes().fold(0, add).saturating_mul(unit))
    }

    proptest! {
        #![proptest_config(cases())]

        /// Each knob reads any text, and takes what lies in its range; what it shows, it reads.
        #[test]
        fn any_text_is_a_value_in_range_or_refused(text in garbled(VALUES)) {
            for declared in super::super::KNOBS {
                let (least, most) = declared.range();
                let (parsed, nearest) = (declared.parse(&text), declared.nearest(&text));
                prop_assert!(nearest.is_none_or(|value| (least..=most).contains(&value)));
                if let Ok(value) = parsed {
                    prop_assert!((least..=most).contains(&value) && nearest == Some(value));
                    let shown = declared.show(value).to_string();
                    prop_assert!(declared.kind == Kind::Text || declared.parse(shown.as_bytes()) == Ok(value));
                }
                let number = naive(&text).map(|n| n.min(u64::MAX.into()) as u64);
                match declared.kind {
                    Kind::Bytes(..) => prop_assert_eq!(parsed.ok(), number.filter(|n| (least..=most).contains(n))),
                    Kind::Number(..) if text.last().is_some_and(u8::is_ascii_digit) => {
                        prop_assert_eq!(nearest, number.map(|n| n.clamp(least, most)));
                    }
                    _ => {}
                }
            }
        }

        #[test]
        fn sizes_come_back_as_they_were(bytes in prop_oneof![any::<u64>(), (0u64..4096, 0u32..50).prop_map(|(n, shift)| n << shift)]) {
            prop_assert_eq!(size(Size(bytes).to_string().as_bytes()), Ok(bytes));
        }
    }
}
