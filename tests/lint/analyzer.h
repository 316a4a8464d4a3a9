/* What clang's analyzer must know of functions that it does not look into: that an error is below
 * 0. Given to it with -include (tools/lint); nothing else sees it. */
#include "common/json.h"
#include "common/status.h"

#define err_set(e, code, ...) (err_set(e, code, __VA_ARGS__), (code))
#define json_fail(at, e, ...) (json_fail(at, e, __VA_ARGS__), HP_EPARSE)
