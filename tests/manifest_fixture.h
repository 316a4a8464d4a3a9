/* The manifest of one file of one chunk, in hexadecimal digits, as documents of networks have it.
 */
#ifndef HP_TESTS_MANIFEST_FIXTURE_H
#define HP_TESTS_MANIFEST_FIXTURE_H

#include "common/json.h"
#include "common/manifest.h"
#include "tests/test.h"

static inline json_t *manifest_json_of(const char *file_name, uint64_t bytes)
{
    static const uint8_t digest[DIGEST_BYTES] = {7};
    struct manifest_file file = {file_name, bytes};
    struct manifest_chunk chunk = {0, 0, bytes, {digest, sizeof digest}};
    struct manifest m = {.name = file_name, .files = {&file, 1}, .chunks = {&chunk, 1}};
    struct buffer encoded = {0};
    manifest_encode(&m, &encoded);
    json_t *hex = json_hex(encoded.data, encoded.size);
    buffer_free(&encoded);
    assert_non_null(hex);
    return hex;
}

#endif
