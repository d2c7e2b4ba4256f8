//! Cron schedules of budgets: five fields or a nickname, in UTC, read as Karpenter reads them.
//!
//! Minute, hour, day of month, month and day of week (0 to 6, Sunday is 0) with `*`, `?`, lists,
//! ranges, steps and English names. When both day fields are restricted, a day that matches either
//! of them counts.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

/// A schedule; each field is a set of the values that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days_of_month: u64,
    months: u64,
    days_of_week: u64,
    any_day_of_month: bool,
    any_day_of_week: bool,
}

/// A text that is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseScheduleError {
    /// Not five fields.
    #[error(
        "schedule `{schedule}` has {count} fields instead of 5: minute, hour, day of month, month, day of week"
    )]
    Fields {
        /// The schedule as written.
        schedule: String,
        /// The number of its fields.
        count: usize,
    },
    /// Not a nickname.
    #[error(
        "schedule `{schedule}` is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly"
    )]
    Nickname {
        /// The schedule as written.
        schedule: String,
    },
    /// A field that cannot be read.
    #[error("{field} `{text}` of the schedule {problem}")]
    Field {
        /// Which field.
        field: &'static str,
        /// The part of the field.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// How far into the future and the past a schedule is followed. One that does not occur within it
/// (such as 30 February) never does.
const HORIZON_YEARS: i16 = 5;

struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAY_OF_WEEK: Field = Field {
    name: "day of week",
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(schedule: &str) -> Result<Self, Self::Err> {
        let expanded = match schedule {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            nickname if nickname.starts_with('@') => {
                return Err(ParseScheduleError::Nickname { schedule: schedule.to_owned() });
            }
            fields => fields,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let [minute, hour, day_of_month, month, day_of_week] = fields[..] else {
            return Err(ParseScheduleError::Fields {
                schedule: schedule.to_owned(),
                count: fields.len(),
            });
        };
        let (days_of_month, any_day_of_month) = DAY_OF_MONTH.parse(day_of_month)?;
        let (days_of_week, any_day_of_week) = DAY_OF_WEEK.parse(day_of_week)?;
        Ok(Self {
            minutes: MINUTE.parse(minute)?.0,
            hours: HOUR.parse(hour)?.0,
            days_of_month,
            months: MONTH.parse(month)?.0,
            days_of_week,
            any_day_of_month,
            any_day_of_week,
        })
    }
}

impl Field {
    /// The set of values, and whether it is unrestricted (which a step of more than one ends).
    fn parse(&self, field: &str) -> Result<(u64, bool), ParseScheduleError> {
        let mut set = 0;
        let mut any = false;
        // Empty parts of a list are skipped, as Karpenter's parser does; a field is never empty as
        // a whole.
        for part in field.split(',').filter(|part| !part.is_empty()) {
            let (values, unrestricted) = self.parse_part(part)?;
            set |= values;
            any |= unrestricted;
        }
        Ok((set, any))
    }

    fn parse_part(&self, part: &str) -> Result<(u64, bool), ParseScheduleError> {
        let problem = |problem: &str| ParseScheduleError::Field {
            field: self.name,
            text: part.to_owned(),
            problem: problem.to_owned(),
        };
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((_, step)) if step.contains('/') => return Err(problem("has more than one step")),
            Some((range, step)) => (range, Some(step)),
        };
        let (low, high) = match range.split_once('-') {
            None => (range, None),
            Some((low, high)) => (low, Some(high)),
        };
        let (start, mut end, mut any) = if low == "*" || low == "?" {
            (self.min, self.max, true)
        } else {
            let start = self.value(low).ok_or_else(|| problem("is not a number or a name"))?;
            let end = match high {
                None => start,
                Some(high) => {
                    self.value(high).ok_or_else(|| problem("is not a range of numbers or names"))?
                }
            };
            (start, end, false)
        };
        let step = match step {
            None => 1,
            Some(step) => {
                let step =
                    step.parse::<u32>().map_err(|_| problem("has a step that is not a number"))?;
                if high.is_none() && !any {
                    end = self.max;
                }
                any &= step <= 1;
                step
            }
        };
        if step == 0 {
            return Err(problem("has a step of 0"));
        }
        if start < self.min || end > self.max {
            return Err(problem(&format!("is outside of {} to {}", self.min, self.max)));
        }
        if start > end {
            return Err(problem("begins after it ends"));
        }
        let values = (start..=end).step_by(step as usize).fold(0, |set, value| set | 1 << value);
        Ok((values, any))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let index = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match index {
            Some(index) => Some(self.min + u32::try_from(index).expect("at most twelve names")),
            None => text.parse().ok(),
        }
    }
}

fn contains(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| set & (1 << value) != 0)
}

impl Schedule {
    /// The first time after `after`, or none within five years.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let start = after.to_zoned(TimeZone::UTC);
        let limit = start.year() + HORIZON_YEARS;
        let mut date = start.date();
        let mut earliest = Some(start.time());
        while date.year() <= limit {
            if self.matches_day(date)
                && let Some(time) =
                    self.times().find(|time| earliest.is_none_or(|earliest| *time > earliest))
            {
                return timestamp(date, time);
            }
            earliest = None;
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The last time at or before `until`, or none within five years.
    pub fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        let start = until.to_zoned(TimeZone::UTC);
        let limit = start.year() - HORIZON_YEARS;
        let mut date = start.date();
        let mut latest = Some(start.time());
        while date.year() >= limit {
            if self.matches_day(date)
                && let Some(time) =
                    self.times().rfind(|time| latest.is_none_or(|latest| *time <= latest))
            {
                return timestamp(date, time);
            }
            latest = None;
            date = date.yesterday().ok()?;
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let of_month = contains(self.days_of_month, date.day());
        let of_week = contains(self.days_of_week, date.weekday().to_sunday_zero_offset());
        let day = if self.any_day_of_month || self.any_day_of_week {
            of_month && of_week
        } else {
            of_month || of_week
        };
        day && contains(self.months, date.month())
    }

    fn times(&self) -> impl DoubleEndedIterator<Item = Time> {
        let Self { minutes, hours, .. } = *self;
        (0..24_i8).filter(move |hour| contains(hours, *hour)).flat_map(move |hour| {
            (0..60_i8)
                .filter(move |minute| contains(minutes, *minute))
                .map(move |minute| Time::constant(hour, minute, 0, 0))
        })
    }
}

fn timestamp(date: Date, time: Time) -> Option<Timestamp> {
    date.to_datetime(time).to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Whether a schedule's windows of a given length are open at a moment, and when that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A window is open until then; none if it never closes as far as can be seen.
    Open {
        /// When it closes.
        until: Option<Timestamp>,
    },
    /// No window is open; the next one opens then.
    Closed {
        /// When one opens.
        until: Timestamp,
    },
}

impl Schedule {
    /// Whether one of the windows that open at the schedule's times and last for `length` is open
    /// at `now`. A window includes its start and not its end. A schedule that never occurs counts
    /// as always open, as Karpenter has it: a budget that makes no sense then holds nodes back
    /// rather than letting them go.
    pub fn is_open(&self, length: jiff::SignedDuration, now: Timestamp) -> bool {
        let Ok(from) = now.checked_sub(length) else { return true };
        self.next_after(from).is_none_or(|opened| opened <= now)
    }

    /// As [`Schedule::is_open`], and when that changes. Windows that touch or overlap are one.
    pub fn window(&self, length: jiff::SignedDuration, now: Timestamp) -> Window {
        /// More windows in a row than this are as good as endless.
        const MAX_CHAINED: usize = 1_000;
        if !self.is_open(length, now) {
            return self
                .next_after(now)
                .map_or(Window::Open { until: None }, |until| Window::Closed { until });
        }
        let mut closes = self.last_until(now).and_then(|opened| opened.checked_add(length).ok());
        for _ in 0..MAX_CHAINED {
            let Some(end) = closes else { break };
            match self.last_until(end).and_then(|opened| opened.checked_add(length).ok()) {
                Some(later) if later > end => closes = Some(later),
                _ => return Window::Open { until: Some(end) },
            }
        }
        Window::Open { until: None }
    }
}

#[cfg(test)]
mod tests;
