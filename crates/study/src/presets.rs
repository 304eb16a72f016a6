//! The presets of every mechanism that has a law.

use weir_core::eyeq::EyeQ;
use weir_core::host::ElasticSwitch;
use weir_model::scenario::Presets;

/// The presets that mechanisms' names may have.
pub const PRESETS: Presets<'_> =
    Presets { elasticswitch: ElasticSwitch::ALL_PRESETS, eyeq: &EyeQ::SHORT_PRESETS };
