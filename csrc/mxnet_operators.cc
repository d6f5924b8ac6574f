// soybean_mx's own operators, for CPU contexts:
//
//   _soybean_mx_channel_sums(data; axis, bins) -> sums (2 * bins, channels) in double precision
//   _soybean_mx_batch_norm_factors(sums, gamma, beta; count, eps, fix_gamma)
//       -> factors (2, channels), mean, var (channels,)
//
// See csrc/kernels/batch_norm.h. A graph that is lowered with them (docs/interface.md,
// "own_operators") needs this library to be loaded into MXNet.
#include <mxnet/lib_api.h>

#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/batch_norm.h"
#include "kernels/binned_sum.h"

namespace soybean {
namespace {

using mxnet::ext::MX_FAIL;
using mxnet::ext::MX_SUCCESS;
using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using mxnet::ext::OpResource;
using Attributes = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<MXTensor>;
using Shapes = std::vector<std::vector<unsigned int>>;
using Types = std::vector<int>;

const std::string& attribute(const Attributes& attrs, const std::string& key) {
  const auto found = attrs.find(key);
  if (found == attrs.end()) throw std::invalid_argument("the attribute " + key + " is missing");
  return found->second;
}

double number(const Attributes& attrs, const std::string& key) {
  return std::strtod(attribute(attrs, key).c_str(), nullptr);
}

size_t channel_axis(const Attributes& attrs, size_t rank) {
  const long axis = std::strtol(attribute(attrs, "axis").c_str(), nullptr, 10);
  if (axis < 0 || static_cast<size_t>(axis) >= rank) {
    throw std::invalid_argument("axis is " + std::to_string(axis) + ", but data has " + std::to_string(rank) + " dims");
  }
  return static_cast<size_t>(axis);
}

ChannelView view_of(const MXTensor& data, size_t axis) {
  ChannelView view{1, data.shape[axis], 1};
  for (size_t d = 0; d < data.shape.size(); ++d) {
    if (d < axis) view.outer *= data.shape[d];
    if (d > axis) view.inner *= data.shape[d];
  }
  return view;
}

// Runs `body`, which throws on failure; MXNet gets a message.
template <typename Body>
MXReturnValue guarded(const char* op, Body body) {
  try {
    body();
    return MX_SUCCESS;
  } catch (const std::exception& error) {
    MX_ERROR_MSG << op << ": " << error.what();
  } catch (...) {
    MX_ERROR_MSG << op << ": an unknown error";
  }
  return MX_FAIL;
}

// Calls `body` with a null pointer of the element type.
template <typename Body>
void with_type(int type, Body body) {
  if (type == mxnet::ext::kFloat32) {
    body(static_cast<float*>(nullptr));
  } else if (type == mxnet::ext::kFloat64) {
    body(static_cast<double*>(nullptr));
  } else {
    throw std::invalid_argument("the element type has number " + std::to_string(type) + ", but float32 and float64 are possible");
  }
}

// ---- _soybean_mx_channel_sums

constexpr const char* kSums = "_soybean_mx_channel_sums";

int64_t bin_count(const Attributes& attrs) {
  const std::string& bins = attribute(attrs, "bins");
  if (bins != "1" && bins != std::to_string(kBins)) {
    throw std::invalid_argument("bins is " + bins + ", but 1 and " + std::to_string(kBins) + " are possible");
  }
  return bins == "1" ? 1 : kBins;
}

MXReturnValue sums_arity(const Attributes&, int* inputs, int* outputs) {
  *inputs = 1;
  *outputs = 1;
  return MX_SUCCESS;
}

MXReturnValue sums_types(const Attributes&, Types*, Types* out) {
  (*out)[0] = mxnet::ext::kFloat64;
  return MX_SUCCESS;
}

MXReturnValue sums_shapes(const Attributes& attrs, Shapes* in, Shapes* out) {
  return guarded(kSums, [&] {
    const std::vector<unsigned int>& data = (*in)[0];
    if (data.empty()) return;  // not known yet
    (*out)[0] = {2 * static_cast<unsigned int>(bin_count(attrs)), data[channel_axis(attrs, data.size())]};
  });
}

MXReturnValue sums_forward(const Attributes& attrs, Tensors* in, Tensors* out, const OpResource&) {
  return guarded(kSums, [&] {
    MXTensor& data = (*in)[0];
    const ChannelView view = view_of(data, channel_axis(attrs, data.shape.size()));
    with_type(data.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      channel_sums(view, data.data<T>(), bin_count(attrs), (*out)[0].data<double>());
    });
  });
}

// in: the gradient of sums, data, sums.
MXReturnValue sums_backward(const Attributes& attrs, Tensors* in, Tensors* out, const OpResource&) {
  return guarded(kSums, [&] {
    MXTensor& data = (*in)[1];
    const ChannelView view = view_of(data, channel_axis(attrs, data.shape.size()));
    with_type(data.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      channel_sums_gradient(view, data.data<T>(), bin_count(attrs), (*in)[0].data<double>(), (*out)[0].data<T>());
    });
  });
}

// ---- _soybean_mx_batch_norm_factors

constexpr const char* kFactors = "_soybean_mx_batch_norm_factors";

BatchNormSettings settings(const Attributes& attrs) {
  const std::string& fix_gamma = attribute(attrs, "fix_gamma");
  return {number(attrs, "count"), number(attrs, "eps"), fix_gamma == "True" || fix_gamma == "1"};
}

ChannelSums channel_sums_of(MXTensor* tensor) {
  return {tensor->shape[1], tensor->shape[0] / 2, tensor->data<double>()};
}

MXReturnValue factors_arity(const Attributes&, int* inputs, int* outputs) {
  *inputs = 3;
  *outputs = 3;
  return MX_SUCCESS;
}

MXReturnValue factors_types(const Attributes&, Types* in, Types* out) {
  for (int& type : *out) type = (*in)[1];
  return MX_SUCCESS;
}

MXReturnValue factors_shapes(const Attributes&, Shapes* in, Shapes* out) {
  const std::vector<unsigned int>& gamma = (*in)[1];
  if (gamma.empty()) return MX_SUCCESS;  // not known yet
  *out = {{2, gamma[0]}, gamma, gamma};
  return MX_SUCCESS;
}

MXReturnValue factors_forward(const Attributes& attrs, Tensors* in, Tensors* out, const OpResource&) {
  return guarded(kFactors, [&] {
    MXTensor& gamma = (*in)[1];
    with_type(gamma.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      batch_norm_factors<T>(settings(attrs), channel_sums_of(&(*in)[0]), gamma.data<T>(), (*in)[2].data<T>(),
                            {(*out)[0].data<T>(), (*out)[1].data<T>(), (*out)[2].data<T>()});
    });
  });
}

// in: the gradients of factors, mean and var, then sums, gamma, beta, and the outputs.
MXReturnValue factors_backward(const Attributes& attrs, Tensors* in, Tensors* out, const OpResource&) {
  return guarded(kFactors, [&] {
    MXTensor& gamma = (*in)[4];
    with_type(gamma.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      batch_norm_factors_gradient<T>(settings(attrs), channel_sums_of(&(*in)[3]), (*in)[0].data<T>(), gamma.data<T>(),
                                     {(*out)[0].data<double>(), (*out)[1].data<T>(), (*out)[2].data<T>()});
    });
  });
}

}  // namespace
}  // namespace soybean

REGISTER_OP(_soybean_mx_channel_sums)
    .setParseAttrs(soybean::sums_arity)
    .setInferType(soybean::sums_types)
    .setInferShape(soybean::sums_shapes)
    .setForward(soybean::sums_forward, "cpu")
    .setBackward(soybean::sums_backward, "cpu");

REGISTER_OP(_soybean_mx_batch_norm_factors)
    .setParseAttrs(soybean::factors_arity)
    .setInferType(soybean::factors_types)
    .setInferShape(soybean::factors_shapes)
    .setForward(soybean::factors_forward, "cpu")
    .setBackward(soybean::factors_backward, "cpu");
