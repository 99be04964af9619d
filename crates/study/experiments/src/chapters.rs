//! Chapters of the report, in its order. A new one is one row of [`CHAPTERS`]; figures name it as their
//! `group`.

use serde::{Deserialize, Deserializer};

/// A chapter of figures.
#[derive(Debug, PartialEq)]
pub struct Chapter {
    /// Its name in figures, and the part of its anchor after `chapter-`.
    pub name: &'static str,
    /// The suite of claims about the same drives.
    pub suite: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its introduction.
    pub lead: &'static str,
    /// The chapter has no published results to compare with, so it reports which series is best.
    pub says_best: bool,
}

/// Every chapter.
pub static CHAPTERS: &[Chapter] = &[
    Chapter {
        name: "paper",
        suite: "bandslim",
        title: "The BandSlim paper",
        lead: "Every panel of the evaluation of Park et al., BandSlim, ICPP'24. Lines and bars are our runs; a ring is a value \
               the paper states in its text. Where the paper states a ratio, the ring stands at that ratio of our own baseline.",
        says_best: false,
    },
    Chapter {
        name: "article",
        suite: "bandslim",
        title: "The CXL article",
        lead: "Park et al., IEEE Micro. No hardware of this kind was measured by the authors either: their numbers are estimates, \
               and ours use constants that were chosen so that the orderings they state come out.",
        says_best: false,
    },
    Chapter {
        name: "plus",
        suite: "plus",
        title: "Hash-table FTLs",
        lead: "Duffy, Kim and Kim, A Hash-Based Key-Value SSD FTL With Efficient Small-Value Support. Its emulator leaves much of what \
               a drive does without time; here everything takes its time, and one figure says what each omission is worth. Absolute \
               throughput is published in figures alone; ratios are held against ours.",
        says_best: false,
    },
    Chapter {
        name: "plus2",
        suite: "plus2",
        title: "A hash FTL of ours",
        lead: "Plus2 keeps what Plus does with a third of the bytes for every pair. It has to be no slower anywhere, faster where much is written, and to program less and take less DRAM: on the same drive, whichever structures the DRAM is for.",
        says_best: false,
    },
    Chapter {
        name: "pm983",
        suite: "pm983",
        title: "A real drive: Samsung's PM983",
        lead: "Samsung's PM983 with key-value firmware, as public logs and Samsung's guide of 2018 and 2019 have it. Constants are fitted to a \
               part of them; the rest is held against runs. Nothing was measured by us.",
        says_best: false,
    },
    Chapter {
        name: "saker",
        suite: "saker",
        title: "Stores on either side of the wire",
        lead: "Zhong, Wang and Jiang, SAKER, SYSTOR'25: a key-value store on the host or in the drive, and a layer on the host that \
               batches small writes. Plots of the paper carry no values; ratios of its text are held against ours.",
        says_best: false,
    },
    Chapter {
        name: "kvcache",
        suite: "kvcache",
        title: "The cache of a language model",
        lead: "Attention keys and values of prompts, kept on a drive and found again by later requests: two public traces of Mooncake \
               (Qin et al., FAST'25). Hits are counted and held against two independent programs. What the cache does to a drive is \
               nowhere published: writes are counted, times are modelled, on profiles that were not calibrated on a KV drive.",
        says_best: false,
    },
    Chapter {
        name: "beyond",
        suite: "bandslim",
        title: "Beyond the papers",
        lead: "What the papers name as open, and what other methods would do on the same drive. There is nothing published to hold \
               these runs against.",
        says_best: true,
    },
];

/// The chapter that a figure names.
pub(super) fn named<'de, D: Deserializer<'de>>(from: D) -> Result<&'static Chapter, D::Error> {
    let name = String::deserialize(from)?;
    CHAPTERS.iter().find(|chapter| chapter.name == name).ok_or_else(|| {
        let names: Vec<_> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
        serde::de::Error::custom(format!("no group {name:?}; there are {}", names.join(", ")))
    })
}
