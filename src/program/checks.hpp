#pragma once

#include "program/program.hpp"

namespace tandem::program {

/// The program with a check for NaN of each root that says so (Root::checked), on the side lane, which a
/// program of one lane gets for it.
///
///   before                     after
///                              cur > bk
///                              bk: check a for NaN        what peers get, or what is made of it: all else
///                              bk > cur                   waits for it
///   cur: ...                   cur: ...
///   bk: ...                    bk: ...
///                              bk: check b0 for NaN       what only this rank uses: behind all that peers
///   bk > cur                   bk > cur                   wait for
///   ...                        ...
///
/// No check stands between two steps of the side lane, where a peer may wait for the second: a check needs
/// room on a GPU, whose product may fill it and wait for that peer.
[[nodiscard]] Program with_checks(Program program);

/// Whether it is such a program.
[[nodiscard]] bool checks_nan(const Program& program);

}  // namespace tandem::program
