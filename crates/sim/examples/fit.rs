//! Looks for costs that bring the simulation closer to the rows of 2004 that it is fitted to. Each cost in turn
//! becomes a little larger and a little smaller, in ever smaller steps.
//!
//!     cargo run --release -p faultless-sim --example fit

use faultless_sim::costs::Costs;
use faultless_sim::seed::{FITTED, MACHINE, distance};

/// Steps, as factors.
const STEPS: [f64; 4] = [1.3, 1.1, 1.03, 1.01];

fn main() {
    let mut costs = MACHINE;
    let mut best = distance(&costs);
    println!("off by {:.4} at first", best.sqrt());
    for step in STEPS {
        while let Some((closer, is)) = closer(&costs, best, step) {
            (costs, best) = (closer, is);
            println!("off by {:.4} with steps of {step}", best.sqrt());
        }
    }
    for (name, field) in FITTED {
        println!("{name}: {:.4e}", *field(&mut costs));
    }
}

/// The best of what one step leads to, if that is closer.
fn closer(costs: &Costs, best: f64, step: f64) -> Option<(Costs, f64)> {
    let near = FITTED.iter().flat_map(|(_, field)| [step, 1.0 / step].map(|factor| (field, factor)));
    let tried = near.map(|(field, factor)| {
        let mut costs = costs.clone();
        *field(&mut costs) *= factor;
        let is = distance(&costs);
        (costs, is)
    });
    tried.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, is)| *is < best * 0.999)
}
