// Writes out the operators that a plan cuts along a dim over which they take a statistic
// (Factor::statistic): the program and the plan that are lowered in place of those of the
// search.
//
// The primitives (rules/written_out.h) are cut as the operator is: at each cut along the
// dim of their operands that is split there. A statistic is joined as soon as it is made
// and rests with all groups; the operands, which several primitives use, are converted
// once.
#ifndef SOYBEAN_LOWER_WRITE_OUT_H_
#define SOYBEAN_LOWER_WRITE_OUT_H_

#include "search/plan.h"

namespace soybean {

struct Lowerable {
  Program program;
  Plan plan;
};

// Throws Error for a plan that is not one of the program.
Lowerable write_out(const Program& program, const Plan& plan);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_WRITE_OUT_H_
