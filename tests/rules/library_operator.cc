// An operator of a library as a user would write it: plain_dense, data[n,c] weight[m,c] -> scale * data x weight^T.
#include <mxnet/lib_api.h>

#include <cstdlib>

using namespace mxnet::ext;

namespace {

using Attributes = std::unordered_map<std::string, std::string>;

// out[rows, columns] = scale * sum over k of a[k * a_k + row * a_row] * b[k * b_k + column * b_column]
void product(const float* a, const float* b, float* out, int64_t rows, int64_t columns, int64_t terms, int64_t a_row,
             int64_t a_k, int64_t b_column, int64_t b_k, float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < terms; ++k) sum += a[i * a_row + k * a_k] * b[j * b_column + k * b_k];
      out[i * columns + j] = scale * sum;
    }
  }
}

float scale_of(const Attributes& attributes) { return std::strtof(attributes.at("scale").c_str(), nullptr); }

MXReturnValue forward(const Attributes& attributes, std::vector<MXTensor>* in, std::vector<MXTensor>* out,
                      const OpResource&) {
  const int64_t n = (*in)[0].shape[0], c = (*in)[0].shape[1], m = (*in)[1].shape[0];
  product((*in)[0].data<float>(), (*in)[1].data<float>(), (*out)[0].data<float>(), n, m, c, c, 1, c, 1,
          scale_of(attributes));
  return MX_SUCCESS;
}

MXReturnValue backward(const Attributes& attributes, std::vector<MXTensor>* in, std::vector<MXTensor>* out,
                       const OpResource&) {  // in: gradient, data, weight
  const int64_t n = (*in)[1].shape[0], c = (*in)[1].shape[1], m = (*in)[2].shape[0];
  const float scale = scale_of(attributes);
  product((*in)[0].data<float>(), (*in)[2].data<float>(), (*out)[0].data<float>(), n, c, m, m, 1, 1, c, scale);
  product((*in)[0].data<float>(), (*in)[1].data<float>(), (*out)[1].data<float>(), m, c, n, 1, m, 1, c, scale);
  return MX_SUCCESS;
}

MXReturnValue parse(const Attributes&, int* inputs, int* outputs) {
  *inputs = 2;
  *outputs = 1;
  return MX_SUCCESS;
}

MXReturnValue infer_type(const Attributes&, std::vector<int>* in, std::vector<int>* out) {
  (*out)[0] = (*in)[0];
  return MX_SUCCESS;
}

MXReturnValue infer_shape(const Attributes& attributes, std::vector<std::vector<unsigned int>>* in,
                          std::vector<std::vector<unsigned int>>* out) {
  const auto hidden = static_cast<unsigned int>(std::strtoul(attributes.at("num_hidden").c_str(), nullptr, 10));
  if ((*in)[1][0] != hidden) return MX_FAIL;
  (*out)[0] = {(*in)[0][0], hidden};
  return MX_SUCCESS;
}

}  // namespace

REGISTER_OP(plain_dense)
    .setForward(forward, "cpu")
    .setBackward(backward, "cpu")
    .setParseAttrs(parse)
    .setInferType(infer_type)
    .setInferShape(infer_shape);

MXReturnValue initialize(int) { return MX_SUCCESS; }
