#include "rules/kept.h"

#include <set>

namespace soybean {

bool shares_memory(const std::string& op) {
  static const std::set<std::string> operators = {
      "BlockGrad",   "Flatten",   "MakeLoss",    "Reshape",    "_copy",        "_np_copy",
      "_np_reshape", "_np_squeeze", "_npx_reshape", "expand_dims", "make_loss", "reshape_like",
      "squeeze",     "_contrib_gradientmultiplier", "_identity_with_attr_like_rhs"};
  return operators.count(op) > 0;
}

bool backward_reads_input(const std::string& op, size_t input) {
  // Linear ones, those that only move elements, and those that know their gradient from
  // their output.
  static const std::set<std::string> none = {
      "_linalg_det",     "_linalg_extractdiag", "_linalg_extracttrian", "_linalg_gelqf", "_linalg_inverse",
      "_linalg_makediag", "_linalg_maketrian", "_linalg_potrf", "_linalg_slogdet",  "_linalg_syevd",
      "_np_diag",        "_np_diagflat",    "_np_diagonal",   "_np_trace",       "_npi_cholesky",
      "_npi_column_stack", "_npi_dsplit",   "_npi_hsplit",    "_npi_rot90",      "_npi_svd",
      "_npi_tril",       "_scatter_minus_scalar", "_scatter_plus_scalar", "cast_storage", "diag",
      "Activation",      "Cast",            "Concat",         "Dropout",       "Pad",
      "SliceChannel",    "SoftmaxActivation", "SwapAxis",     "UpSampling",    "_contrib_div_sqrt_dim",
      "_div_scalar",     "_minus_scalar",   "_mul_scalar",    "_np_moveaxis",  "_np_roll",
      "_np_sum",         "_np_transpose",   "_npi_add",       "_npi_add_scalar", "_npi_broadcast_to",
      "_npi_concatenate", "_npi_dstack",    "_npi_exp",       "_npi_flip",     "_npi_hstack",
      "_npi_mean",       "_npi_multiply_scalar", "_npi_negative", "_npi_pad",  "_npi_sqrt",
      "_npi_stack",      "_npi_subtract",   "_npi_subtract_scalar", "_npi_tanh",
      "_npi_true_divide_scalar", "_npi_vstack", "_npx_relu",  "_npx_sigmoid",  "_plus_scalar",
      "_rminus_scalar",  "_split_v2",       "add_n",          "amp_cast",      "amp_multicast",
      "broadcast_add",   "broadcast_axis",  "broadcast_like", "broadcast_sub", "broadcast_to",
      "depth_to_space",  "elemwise_add",    "elemwise_sub",   "exp",           "log_softmax",
      "mean",            "negative",        "relu",           "repeat",        "reverse",
      "sigmoid",         "slice",           "slice_axis",     "slice_like",    "softmax",
      "softmin",         "space_to_depth",  "sqrt",           "stack",         "sum",
      "tanh",            "tile",            "transpose",
      "Correlation",     "Crop",            "GridGenerator",  "_contrib_AdaptiveAvgPooling2D",
      "_contrib_BilinearResize2D", "_contrib_MultiBoxTarget", "_contrib_bipartite_matching",
      "_contrib_box_iou", "_contrib_box_nms", "_image_crop",  "_image_flip_left_right",
      "_image_flip_top_bottom", "col2im",   "im2col"};
  // The first reads its indices, the second reads them and no data.
  if (op == "Embedding") return input == 0;
  if (op == "scatter_nd") return input == 1;
  if (op == "take" || op == "pick" || op == "gather_nd" || op == "batch_take") return input == 1;
  if (op == "ROIPooling" || op == "_contrib_ROIAlign" || op == "_contrib_PSROIPooling") return input == 1;
  if (op == "where" || op == "_npi_where") return input == 0;
  if (op == "SoftmaxOutput" || op == "LinearRegressionOutput" || op == "LogisticRegressionOutput") {
    return input == 1;
  }
  if ((op == "FullyConnected" || op == "Convolution" || op == "Deconvolution") && input == 2) return false;
  if (op == "Convolution_v1" && input == 2) return false;
  if (op == "_contrib_DeformableConvolution" && input == 3) return false;
  if (op == "_contrib_ModulatedDeformableConvolution" && input == 4) return false;
  return none.count(op) == 0 && !shares_memory(op);
}

bool backward_reads_outputs(const std::string& op) {
  static const std::set<std::string> operators = {
      "_linalg_det", "_linalg_gelqf", "_linalg_inverse", "_linalg_potrf", "_linalg_potri", "_linalg_slogdet",
      "_linalg_syevd", "_linalg_trsm", "_npi_average", "_npi_cholesky", "_npi_exponential", "_npi_gumbel",
      "_npi_logistic", "_npi_norm", "_npi_normal", "_npi_normal_n", "_npi_pareto", "_npi_rayleigh",
      "_npi_solve", "_npi_svd", "_npi_weibull",
      "Activation", "Custom", "LinearRegressionOutput", "LogisticRegressionOutput", "Pooling", "SVMOutput",
      "_soybean_mx_batch_norm_factors", "_soybean_mx_channel_sums",
      "RNN",        "SoftmaxActivation",      "SoftmaxOutput",  "_npi_cbrt", "_npi_exp",
      "_npi_sqrt",  "_npi_tanh",  "_npx_relu", "_npx_sigmoid",  "cbrt",      "exp",
      "log_softmax", "max",       "min",       "norm",          "prod",      "rcbrt",
      "relu",       "rsqrt",      "sigmoid",   "softmax",       "softmin",   "sqrt",
      "tanh",       "topk",
      "Pooling_v1", "_contrib_MultiBoxPrior", "_contrib_box_nms"};
  return operators.count(op) > 0;
}

bool runs_in_place(const std::string& op) {
  static const std::set<std::string> operators = {
      "Activation",  "Cast",         "_div_scalar",  "_minus_scalar", "_mul_scalar", "_npi_add",
      "_npi_subtract", "_npi_add_scalar", "_npi_multiply_scalar", "_npi_subtract_scalar",
      "_npi_true_divide_scalar", "_npi_tanh", "_npx_relu", "_npx_sigmoid", "_plus_scalar",
      "_rminus_scalar", "add_n",     "clip",         "elemwise_add",  "elemwise_sub", "log_softmax",
      "relu",        "sigmoid",      "softmax",      "tanh"};
  return operators.count(op) > 0;
}

}  // namespace soybean
