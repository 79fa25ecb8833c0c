//! What zeroing costs, by each engine: memory that the caches hold, and memory that they do not.

use faultless_base::sys::Huge;
use faultless_base::zero::Engine;
use faultless_base::{PAGE, SLOT, Span};

use super::area::{Area, time};
use super::{Probe, Samples};

/// What fits the second-level cache of every processor of the last ten years.
const INSIDE: usize = 128 << 10;
/// How often that is zeroed in a round.
const TURNS: usize = 8;

/// The names of an engine's two rows.
pub fn ids(engine: Engine) -> [&'static str; 2] {
    match engine {
        Engine::StringStore => ["zero_string_inside", "zero_string_beyond"],
        Engine::Memset => ["zero_memset_inside", "zero_memset_beyond"],
        Engine::Stream16 => ["zero_sse2_inside", "zero_sse2_beyond"],
        Engine::Stream32 => ["zero_avx2_inside", "zero_avx2_beyond"],
        Engine::Stream64 => ["zero_avx512_inside", "zero_avx512_beyond"],
        Engine::LineZero => ["zero_clzero_inside", "zero_clzero_beyond"],
        Engine::Kernel => ["zero_kernel_inside", "zero_kernel_beyond"],
        Engine::Dsa => ["zero_dsa_inside", "zero_dsa_beyond"],
    }
}

/// All engines that this processor has, over `bytes` that are more than its caches hold.
pub fn all(bytes: usize) -> Result<Probe, String> {
    let area = Area::new(bytes.max(SLOT), Huge::Advised)?;
    area.touch(area.span());
    let bytes = area.span().bytes();
    Ok(Box::new(move |samples: &mut Samples| {
        for engine in Engine::ALL.into_iter().filter(|engine| engine.is_available()) {
            let [inside, beyond] = ids(engine);
            let mut sample = |id, part: Span| {
                samples.add(id, time(|| area.zero(engine, part)) / (part.bytes() / PAGE) as f64);
            };
            // When the turn comes to a part again, all others were in the caches after it.
            (0..bytes / SLOT).for_each(|i| sample(beyond, area.piece(i, SLOT)));
            let same = area.piece(0, INSIDE);
            area.zero(Engine::Memset, same);
            (0..TURNS).for_each(|_| sample(inside, same));
        }
        Ok(())
    }))
}
