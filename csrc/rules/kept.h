// What an operator's backward pass reads of its forward pass, as MXNet 1.9.1
// computes it: what must be kept until then.
#ifndef SOYBEAN_RULES_KEPT_H_
#define SOYBEAN_RULES_KEPT_H_

#include <string>

namespace soybean {

// Whether the backward pass reads the value of input `input`. True for operators
// that nothing is known about.
bool backward_reads_input(const std::string& op, size_t input);

// Whether it reads the operator's outputs.
bool backward_reads_outputs(const std::string& op);

// Whether the output is the input itself under another shape, in the same memory.
bool shares_memory(const std::string& op);

// Whether the output may be written over the first input.
bool runs_in_place(const std::string& op);

}  // namespace soybean

#endif  // SOYBEAN_RULES_KEPT_H_
