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
               from the text of the paper. If the paper states a ratio, the ring is at that ratio of our own baseline.",
        says_best: false,
    },
    Chapter {
        name: "article",
        suite: "bandslim",
        title: "The CXL article",
        lead: "Park et al., IEEE Micro. The numbers of the article are estimates, since its authors did not measure such hardware. \
               Our runs use constants that were chosen to reproduce the published orderings.",
        says_best: false,
    },
    Chapter {
        name: "plus",
        suite: "plus",
        title: "Hash-table FTLs",
        lead: "Duffy, Kim and Kim, A Hash-Based Key-Value SSD FTL With Efficient Small-Value Support. In its emulator, \
               much of the work of a drive takes no time. Here all of it takes time, and one figure has the effect of each omission. \
               Absolute throughput is published in plots only, so ratios are compared.",
        says_best: false,
    },
    Chapter {
        name: "plus2",
        suite: "plus2",
        title: "A hash FTL of ours",
        lead: "Plus2 does the work of Plus with a third of the bytes for every pair. Our goals: no workload is slower, workloads \
               with many writes are faster, and fewer bytes are programmed and less DRAM is used, on the same drive and with each \
               of three budgets of DRAM.",
        says_best: false,
    },
    Chapter {
        name: "pink",
        suite: "pink",
        title: "An index in levels, pinned in DRAM",
        lead: "PinK (Im et al., USENIX ATC'20), after its public submission of October 2019 with the raw data of its figures: levels of one sorted \
               run whose lists are in DRAM, upper levels pinned there, beside the hash FTL that its authors compare with. Pages and lookups \
               are compared; times are not, since the board's ARM core and network are in them.",
        says_best: false,
    },
    Chapter {
        name: "anykey",
        suite: "anykey",
        title: "Groups sorted by hash",
        lead: "AnyKey (ASPLOS'25) keeps pairs whose keys are long beside their values in groups of pages sorted by hash, so that DRAM needs \
               two bytes a page instead of a key. It is compared with its authors' port of PinK, on the drive of their artifact, in which \
               stores and channels take no time. Here they do, and one figure has the effect of each.",
        says_best: false,
    },
    Chapter {
        name: "pm983",
        suite: "pm983",
        title: "A real drive: Samsung's PM983",
        lead: "Samsung's PM983 with key-value firmware, as described by public logs and Samsung's guide of 2018 and 2019. Constants are fitted \
               to a part of their numbers; the others are compared with runs. We measured no such drive.",
        says_best: false,
    },
    Chapter {
        name: "saker",
        suite: "saker",
        title: "Stores on either side of the wire",
        lead: "Zhong, Wang and Jiang, SAKER, SYSTOR'25: a key-value store on the host or in the drive, and a layer on the host that \
               batches small writes. The plots of the paper have no values, so ratios from its text are compared with ours.",
        says_best: false,
    },
    Chapter {
        name: "kvcache",
        suite: "kvcache",
        title: "The cache of a language model",
        lead: "Attention keys and values of prompts, kept on a drive for later requests with the same prefix: two public traces of Mooncake \
               (Qin et al., FAST'25). Hits are counted and compared with those of two independent programs. The effect of the cache on a \
               drive is not published: writes are counted, times are modelled, on profiles that were not calibrated on a KV drive.",
        says_best: false,
    },
    Chapter {
        name: "drives",
        suite: "pink",
        title: "Every drive beside every other",
        lead: "The engines of all these papers on one flash, one link and the same DRAM for their indexes, with charged stores, on drives that \
               have been written over twice. There are no published results to compare these runs with: papers measure on platforms of their own.",
        says_best: true,
    },
    Chapter {
        name: "beyond",
        suite: "bandslim",
        title: "Beyond the papers",
        lead: "Questions that the papers leave open, and other methods on the same drive. There are no published results to compare \
               these runs with.",
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
