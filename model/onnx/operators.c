#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/onnx/elementwise.h"
#include "model/onnx/index.h"
#include "model/onnx/move.h"
#include "model/onnx/norm.h"
#include "model/onnx/operator.h"
#include "model/onnx/products.h"
#include "model/onnx/reduce.h"
#include "model/onnx/resize.h"
#include "model/onnx/rows.h"
#include "model/onnx/shapes.h"
#include "model/onnx/windows.h"

/* ---- numbers ---- */

#define UNARY(name, value)                                                                         \
    static double name(double x, double a, double b)                                               \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        return value;                                                                              \
    }
static double log_of_1_and_exp(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}
static double number_clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

UNARY(number_abs, fabs(x))
UNARY(number_acos, acos(x))
UNARY(number_acosh, acosh(x))
UNARY(number_asin, asin(x))
UNARY(number_asinh, asinh(x))
UNARY(number_atan, atan(x))
UNARY(number_atanh, atanh(x))
UNARY(number_ceil, ceil(x))
UNARY(number_celu, fmax(0, x) + fmin(0, a *expm1(x / a)))
UNARY(number_cos, cos(x))
UNARY(number_cosh, cosh(x))
UNARY(number_elu, x < 0 ? a * expm1(x) : x)
UNARY(number_erf, erf(x))
UNARY(number_exp, exp(x))
UNARY(number_floor, floor(x))
UNARY(number_gelu, a != 0 ? 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
                          : 0.5 * x * (1 + erf(x * M_SQRT1_2)))
UNARY(number_hard_sigmoid, number_clip(a *x + b, 0, 1))
UNARY(number_hard_swish, x *number_clip(x / 6 + 0.5, 0, 1))
UNARY(number_is_inf, isinf(x) && (x > 0 ? a : b) != 0)
UNARY(number_is_nan, isnan(x) != 0)
UNARY(number_leaky_relu, x < 0 ? a * x : x)
UNARY(number_log, log(x))
UNARY(number_mish, x *tanh(log_of_1_and_exp(x)))
UNARY(number_neg, -x)
UNARY(number_reciprocal, 1 / x)
UNARY(number_relu, x < 0 ? 0 : x)
UNARY(number_round, nearbyint(x))
UNARY(number_selu, x > 0 ? a * x : a * b * expm1(x))
UNARY(number_shrink, x<-a ? x + b : x> a ? x - b : 0)
UNARY(number_sigmoid, sigmoid_of(x))
UNARY(number_sign, x != x ? x : (x > 0) - (x < 0))
UNARY(number_sin, sin(x))
UNARY(number_sinh, sinh(x))
UNARY(number_softplus, log_of_1_and_exp(x))
UNARY(number_softsign, x / (1 + fabs(x)))
UNARY(number_sqrt, sqrt(x))
UNARY(number_tan, tan(x))
UNARY(number_tanh, tanh(x))
UNARY(number_thresholded_relu, x > a ? x : 0)

#define BINARY(name, of_floats, of_integers)                                                       \
    static double name##_f64(double x, double y)                                                   \
    {                                                                                              \
        return of_floats;                                                                          \
    }                                                                                              \
    static int64_t name##_i64(int64_t x, int64_t y)                                                \
    {                                                                                              \
        return of_integers;                                                                        \
    }
static int64_t power_of(int64_t x, int64_t n)
{
    if (n < 0)
        return x == 1 ? 1 : x == -1 ? (n % 2 ? -1 : 1) : 0;
    uint64_t result = 1, base = (uint64_t)x;
    for (; n > 0; n >>= 1, base *= base)
        result *= n & 1 ? base : 1;
    return (int64_t)result;
}

BINARY(two_add, x + y, (int64_t)((uint64_t)x + (uint64_t)y))
BINARY(two_sub, x - y, (int64_t)((uint64_t)x - (uint64_t)y))
BINARY(two_mul, x *y, (int64_t)((uint64_t)x *(uint64_t)y))
BINARY(two_div, x / y, y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y)
BINARY(two_pow, pow(x, y), power_of(x, y))
BINARY(two_max, x != x || x > y ? x : y, x > y ? x : y)
BINARY(two_min, x != x || x < y ? x : y, x < y ? x : y)
BINARY(two_equal, x == y, x == y)
BINARY(two_greater, x > y, x > y)
BINARY(two_greater_or_equal, x >= y, x >= y)
BINARY(two_less, x < y, x < y)
BINARY(two_less_or_equal, x <= y, x <= y)
BINARY(two_prelu, x < 0 ? x * y : x, x < 0 ? (int64_t)((uint64_t)x * (uint64_t)y) : x)

static int64_t whole_abs(int64_t x, int64_t y)
{
    return x < 0 ? (int64_t)(0 - (uint64_t)x) + 0 * y : x;
}
static int64_t whole_neg(int64_t x, int64_t y)
{
    return (int64_t)(0 - (uint64_t)x) + 0 * y;
}
static int64_t whole_relu(int64_t x, int64_t y)
{
    return x < 0 ? 0 * y : x;
}
static int64_t whole_sign(int64_t x, int64_t y)
{
    return (x > 0) - (x < 0) + 0 * y;
}
static int64_t truth_and(int64_t x, int64_t y)
{
    return x && y;
}
static int64_t truth_or(int64_t x, int64_t y)
{
    return x || y;
}
static int64_t truth_xor(int64_t x, int64_t y)
{
    return !x != !y;
}
static int64_t bits_and(int64_t x, int64_t y)
{
    return x & y;
}
static int64_t bits_not(int64_t x, int64_t y)
{
    return ~x + 0 * y;
}
static int64_t bits_or(int64_t x, int64_t y)
{
    return x | y;
}
static int64_t bits_xor(int64_t x, int64_t y)
{
    return x ^ y;
}

/* ---- the table, by name ---- */

#define ONE(f) 1, 1, 1, .run = onnx_run_unary, .unary = (f)
#define TWO(runs, f) 2, 2, 1, .run = (runs), .f64 = f##_f64, .i64 = f##_i64
#define TRUTH(f) 2, 2, 1, .run = onnx_run_compare, .i64 = (f)
#define BITS(f) 2, 2, 1, .run = onnx_run_arithmetic, .i64 = (f)
#define REDUCE(kind_of) 1, 2, 1, .run = onnx_run_reduce, .kind = (kind_of)

static const struct onnx_operator operators[] = {
    {"Abs", ONE(number_abs), .i64 = whole_abs},
    {"Acos", ONE(number_acos)},
    {"Acosh", ONE(number_acosh)},
    {"Add", TWO(onnx_run_arithmetic, two_add)},
    {"And", TRUTH(truth_and)},
    {"ArgMax", 1, 1, 1, .run = onnx_run_arg},
    {"ArgMin", 1, 1, 1, .run = onnx_run_arg, .kind = 1},
    {"Asin", ONE(number_asin)},
    {"Asinh", ONE(number_asinh)},
    {"Atan", ONE(number_atan)},
    {"Atanh", ONE(number_atanh)},
    {"AveragePool", 1, 1, 1, .run = onnx_run_average_pool},
    {"BatchNormalization", 5, 5, 1, .run = onnx_run_batch_norm},
    {"BitShift", 2, 2, 1, .run = onnx_run_bit_shift},
    {"BitwiseAnd", BITS(bits_and)},
    {"BitwiseNot", 1, 1, 1, .run = onnx_run_unary, .i64 = bits_not},
    {"BitwiseOr", BITS(bits_or)},
    {"BitwiseXor", BITS(bits_xor)},
    {"Cast", 1, 1, 1, .run = onnx_run_cast},
    {"CastLike", 2, 2, 1, .run = onnx_run_cast},
    {"Ceil", ONE(number_ceil)},
    {"Celu", ONE(number_celu), .a = 1},
    {"Clip", 1, 3, 1, .run = onnx_run_clip},
    {"Concat", 1, -1, 1, .run = onnx_run_concat},
    {"Constant", 0, 0, 1, .run = onnx_run_constant},
    {"ConstantOfShape", 1, 1, 1, .run = onnx_run_constant_of_shape},
    {"Conv", 2, 3, 1, .run = onnx_run_conv},
    {"ConvTranspose", 2, 3, 1, .run = onnx_run_conv_transpose},
    {"Cos", ONE(number_cos)},
    {"Cosh", ONE(number_cosh)},
    {"CumSum", 2, 2, 1, .run = onnx_run_cumsum},
    {"DepthToSpace", 1, 1, 1, .run = onnx_run_depth_to_space},
    {"Div", TWO(onnx_run_arithmetic, two_div)},
    {"Dropout", 1, 3, 2, .run = onnx_run_dropout},
    {"Einsum", 1, -1, 1, .run = onnx_run_einsum},
    {"Elu", ONE(number_elu), .a = 1},
    {"Equal", TWO(onnx_run_compare, two_equal)},
    {"Erf", ONE(number_erf)},
    {"Exp", ONE(number_exp)},
    {"Expand", 2, 2, 1, .run = onnx_run_expand},
    {"Flatten", 1, 1, 1, .run = onnx_run_flatten},
    {"Floor", ONE(number_floor)},
    {"Gather", 2, 2, 1, .run = onnx_run_gather},
    {"GatherElements", 2, 2, 1, .run = onnx_run_gather_elements},
    {"GatherND", 2, 2, 1, .run = onnx_run_gather_nd},
    {"Gelu", ONE(number_gelu)},
    {"Gemm", 2, 3, 1, .run = onnx_run_gemm},
    {"GlobalAveragePool", 1, 1, 1, .run = onnx_run_global_pool},
    {"GlobalLpPool", 1, 1, 1, .run = onnx_run_global_pool, .kind = 2},
    {"GlobalMaxPool", 1, 1, 1, .run = onnx_run_global_pool, .kind = 1},
    {"Greater", TWO(onnx_run_compare, two_greater)},
    {"GreaterOrEqual", TWO(onnx_run_compare, two_greater_or_equal)},
    {"GroupNormalization", 3, 3, 1, .run = onnx_run_group_norm},
    {"HardSigmoid", ONE(number_hard_sigmoid), .a = 0.2, .b = 0.5},
    {"HardSwish", ONE(number_hard_swish)},
    {"Hardmax", 1, 1, 1, .run = onnx_run_softmax, .kind = 2},
    {"Identity", 1, 1, 1, .run = onnx_run_identity},
    {"InstanceNormalization", 3, 3, 1, .run = onnx_run_group_norm, .kind = 1},
    {"IsInf", 1, 1, 1, .run = onnx_run_is, .unary = number_is_inf},
    {"IsNaN", 1, 1, 1, .run = onnx_run_is, .unary = number_is_nan},
    {"LRN", 1, 1, 1, .run = onnx_run_lrn},
    {"LayerNormalization", 2, 3, 3, .run = onnx_run_layer_norm},
    {"LeakyRelu", ONE(number_leaky_relu), .a = 0.01},
    {"Less", TWO(onnx_run_compare, two_less)},
    {"LessOrEqual", TWO(onnx_run_compare, two_less_or_equal)},
    {"Log", ONE(number_log)},
    {"LogSoftmax", 1, 1, 1, .run = onnx_run_softmax, .kind = 1},
    {"LpNormalization", 1, 1, 1, .run = onnx_run_lp_norm},
    {"LpPool", 1, 1, 1, .run = onnx_run_lp_pool},
    {"MatMul", 2, 2, 1, .run = onnx_run_matmul},
    {"Max", 1, -1, 1, .run = onnx_run_variadic, .f64 = two_max_f64, .i64 = two_max_i64},
    {"MaxPool", 1, 1, 2, .run = onnx_run_max_pool},
    {"Mean", 1, -1, 1, .run = onnx_run_variadic, .f64 = two_add_f64, .kind = 1},
    {"MeanVarianceNormalization", 1, 1, 1, .run = onnx_run_mean_variance_norm},
    {"Min", 1, -1, 1, .run = onnx_run_variadic, .f64 = two_min_f64, .i64 = two_min_i64},
    {"Mish", ONE(number_mish)},
    {"Mod", 2, 2, 1, .run = onnx_run_mod},
    {"Mul", TWO(onnx_run_arithmetic, two_mul)},
    {"Neg", ONE(number_neg), .i64 = whole_neg},
    {"NonZero", 1, 1, 1, .run = onnx_run_non_zero},
    {"Not", 1, 1, 1, .run = onnx_run_not},
    {"OneHot", 3, 3, 1, .run = onnx_run_one_hot},
    {"Or", TRUTH(truth_or)},
    {"PRelu", TWO(onnx_run_arithmetic, two_prelu)},
    {"Pad", 1, 4, 1, .run = onnx_run_pad},
    {"Pow", TWO(onnx_run_pow, two_pow)},
    {"Range", 3, 3, 1, .run = onnx_run_range},
    {"Reciprocal", ONE(number_reciprocal)},
    {"ReduceL1", REDUCE(REDUCE_L1)},
    {"ReduceL2", REDUCE(REDUCE_L2)},
    {"ReduceLogSum", REDUCE(REDUCE_LOG_SUM)},
    {"ReduceLogSumExp", REDUCE(REDUCE_LOG_SUM_EXP)},
    {"ReduceMax", REDUCE(REDUCE_MAX)},
    {"ReduceMean", REDUCE(REDUCE_MEAN)},
    {"ReduceMin", REDUCE(REDUCE_MIN)},
    {"ReduceProd", REDUCE(REDUCE_PROD)},
    {"ReduceSum", REDUCE(REDUCE_SUM)},
    {"ReduceSumSquare", REDUCE(REDUCE_SUM_SQUARE)},
    {"Relu", ONE(number_relu), .i64 = whole_relu},
    {"Reshape", 1, 2, 1, .run = onnx_run_reshape},
    {"Resize", 1, 4, 1, .run = onnx_run_resize},
    {"Round", ONE(number_round)},
    {"Scatter", 3, 3, 1, .run = onnx_run_scatter_elements}, /* its name before opset 11 */
    {"ScatterElements", 3, 3, 1, .run = onnx_run_scatter_elements},
    {"ScatterND", 3, 3, 1, .run = onnx_run_scatter_nd},
    {"Selu", ONE(number_selu), .a = 1.0507009873554805, .b = 1.6732632423543772},
    {"Shape", 1, 1, 1, .run = onnx_run_shape},
    {"Shrink", ONE(number_shrink), .a = 0.5},
    {"Sigmoid", ONE(number_sigmoid)},
    {"Sign", ONE(number_sign), .i64 = whole_sign},
    {"Sin", ONE(number_sin)},
    {"Sinh", ONE(number_sinh)},
    {"Size", 1, 1, 1, .run = onnx_run_size},
    {"Slice", 1, 5, 1, .run = onnx_run_slice},
    {"Softmax", 1, 1, 1, .run = onnx_run_softmax},
    {"Softplus", ONE(number_softplus)},
    {"Softsign", ONE(number_softsign)},
    {"SpaceToDepth", 1, 1, 1, .run = onnx_run_space_to_depth},
    {"Split", 1, 2, -1, .run = onnx_run_split},
    {"Sqrt", ONE(number_sqrt)},
    {"Squeeze", 1, 2, 1, .run = onnx_run_squeeze},
    {"Sub", TWO(onnx_run_arithmetic, two_sub)},
    {"Sum", 1, -1, 1, .run = onnx_run_variadic, .f64 = two_add_f64, .i64 = two_add_i64},
    {"Tan", ONE(number_tan)},
    {"Tanh", ONE(number_tanh)},
    {"ThresholdedRelu", ONE(number_thresholded_relu), .a = 1},
    {"Tile", 2, 2, 1, .run = onnx_run_tile},
    {"TopK", 1, 2, 2, .run = onnx_run_topk},
    {"Transpose", 1, 1, 1, .run = onnx_run_transpose},
    {"Trilu", 1, 2, 1, .run = onnx_run_trilu},
    {"Unsqueeze", 1, 2, 1, .run = onnx_run_unsqueeze},
    {"Upsample", 1, 2, 1, .run = onnx_run_resize},
    {"Where", 3, 3, 1, .run = onnx_run_where},
    {"Xor", TRUTH(truth_xor)},
};

/* Of networks that are made of language models. */
static const struct onnx_operator text_operators[] = {
    {"Causal", 1, 2, 1, .run = onnx_run_causal},
    {"Rows", 2, 1 + OP_INPUTS_MAX, 1, .run = onnx_run_rows},
    {"Scores", 4, 4, 1, .run = onnx_run_scores},
};

static const struct onnx_operator *operator_in(const struct onnx_operator *table, size_t n,
                                               const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const struct onnx_operator *onnx_operator_find(const char *domain, const char *name)
{
    if (strcmp(domain, ONNX_ROWS_DOMAIN) == 0)
        return operator_in(text_operators, sizeof text_operators / sizeof *text_operators, name);
    return *domain ? NULL : operator_in(operators, sizeof operators / sizeof *operators, name);
}

/* ---- before it runs ---- */

/* The type that an attribute of a name has, whichever operator has it. */
static const struct {
    const char *name;
    enum onnx_attribute_type type;
} attribute_types[] = {
    {"allowzero", ONNX_INT},
    {"alpha", ONNX_FLOAT},
    {"antialias", ONNX_INT},
    {"approximate", ONNX_STRING},
    {"auto_pad", ONNX_STRING},
    {"axes", ONNX_INTS},
    {"axis", ONNX_INT},
    {"batch_dims", ONNX_INT},
    {"beta", ONNX_FLOAT},
    {"bias", ONNX_FLOAT},
    {"blocksize", ONNX_INT},
    {"broadcast", ONNX_INT},
    {"ceil_mode", ONNX_INT},
    {"coordinate_transformation_mode", ONNX_STRING},
    {"count_include_pad", ONNX_INT},
    {"cubic_coeff_a", ONNX_FLOAT},
    {"detect_negative", ONNX_INT},
    {"detect_positive", ONNX_INT},
    {"dilations", ONNX_INTS},
    {"direction", ONNX_STRING},
    {"end", ONNX_INT},
    {"epsilon", ONNX_FLOAT},
    {"equation", ONNX_STRING},
    {"exclude_outside", ONNX_INT},
    {"exclusive", ONNX_INT},
    {"extrapolation_value", ONNX_FLOAT},
    {"fmod", ONNX_INT},
    {"gamma", ONNX_FLOAT},
    {"group", ONNX_INT},
    {"k", ONNX_INT},
    {"keep_aspect_ratio_policy", ONNX_STRING},
    {"keepdims", ONNX_INT},
    {"kernel_shape", ONNX_INTS},
    {"lambd", ONNX_FLOAT},
    {"largest", ONNX_INT},
    {"max", ONNX_FLOAT},
    {"min", ONNX_FLOAT},
    {"mode", ONNX_STRING},
    {"nearest_mode", ONNX_STRING},
    {"noop_with_empty_axes", ONNX_INT},
    {"num_groups", ONNX_INT},
    {"num_outputs", ONNX_INT},
    {"output_padding", ONNX_INTS},
    {"output_shape", ONNX_INTS},
    {"p", ONNX_INT},
    {"pads", ONNX_INTS},
    {"perm", ONNX_INTS},
    {"reduction", ONNX_STRING},
    {"reverse", ONNX_INT},
    {"scales", ONNX_FLOATS},
    {"select_last_index", ONNX_INT},
    {"shape", ONNX_INTS},
    {"size", ONNX_INT},
    {"spatial", ONNX_INT},
    {"split", ONNX_INTS},
    {"start", ONNX_INT},
    {"storage_order", ONNX_INT},
    {"strides", ONNX_INTS},
    {"to", ONNX_INT},
    {"training_mode", ONNX_INT},
    {"transA", ONNX_INT},
    {"transB", ONNX_INT},
    {"upper", ONNX_INT},
    {"window", ONNX_INT},
};

static int check_attributes(const struct onnx_node *n, const char *what, struct err *e)
{
    for (int i = 0; i < n->n_attributes; i++) {
        const struct onnx_attribute *a = &n->attributes[i];
        if (a->type == ONNX_GRAPH)
            return err_set(e, HP_EUNSUPPORTED, "%s: has a graph of its own", what);
        if (strcmp(n->op, "ConstantOfShape") == 0 && a->type != ONNX_TENSOR)
            return err_set(e, HP_EPARSE, "%s: its %s is no array", what, a->name);
        for (size_t k = 0; k < sizeof attribute_types / sizeof *attribute_types; k++)
            if (strcmp(attribute_types[k].name, a->name) == 0 && attribute_types[k].type != a->type)
                return err_set(e, HP_EPARSE, "%s: its attribute %s is of another type than %s has",
                               what, a->name, n->op);
    }
    return 0;
}

int onnx_operator_check(const struct onnx_node *n, const char *made, struct err *e)
{
    char what[256];
    snprintf(what, sizeof what, "node %.120s (%.80s)", *n->name ? n->name : made, n->op);
    const struct onnx_operator *op = onnx_operator_find(n->domain, n->op);
    if (!op) {
        err_set(e, HP_EUNSUPPORTED, "%s: operator %.80s%s%.80s is not known", what, n->op,
                *n->domain ? " of domain " : "", n->domain);
        return err_hint(e, "%zu operators of ONNX's own domain are; export the model with those",
                        sizeof operators / sizeof *operators);
    }
    if (n->n_inputs < op->least_inputs || (op->most_inputs >= 0 && n->n_inputs > op->most_inputs))
        return err_set(e, HP_EPARSE, "%s: has %d inputs", what, n->n_inputs);
    int there = op->most_inputs < 0 ? n->n_inputs : op->least_inputs;
    for (int i = 0; i < there; i++)
        if (n->inputs[i] < 0)
            return err_set(e, HP_EPARSE, "%s: its input %d is left out", what, i);
    if (n->n_outputs < 1 || (op->most_outputs >= 0 && n->n_outputs > op->most_outputs))
        return err_set(e, HP_EPARSE, "%s: has %d outputs", what, n->n_outputs);
    return check_attributes(n, what, e);
}
