#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fs.h"
#include "tests/test.h"

/* RFC 7693's function at 32 bytes, and FIPS 180-4's. */
static const char abc_blake2b[] =
    "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
                  abc_sha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(names_of_bytes_are_the_published_functions)
{
    char hex[DIGEST_HEX], sha[DIGEST_SHA256_HEX], path[] = "/tmp/hp-digest-XXXXXX";
    struct digest d = digest_of("abc", 3);
    digest_hex(&d, hex);
    assert_string_equal(hex, abc_blake2b);
    close(mkstemp(path));
    assert_int_equal(fs_file_write(path, "abc", 3, 0600, NULL), 0);
    assert_int_equal(digest_file_sha256(path, sha, NULL), 0);
    assert_string_equal(sha, abc_sha256);
    unlink(path);
    assert_int_equal(digest_file_sha256(path, sha, NULL), HP_ENOENT);
}

TEST(hex_comes_back_and_nothing_else_is_taken)
{
    struct digest d = digest_of("x", 1), back;
    char hex[DIGEST_HEX], bad[80];
    digest_hex(&d, hex);
    assert_int_equal(digest_from_hex(hex, &back, NULL), 0);
    assert_memory_equal(&d, &back, sizeof d);
    snprintf(bad, sizeof bad, "%.63s", hex);
    assert_int_equal(digest_from_hex(bad, &back, NULL), HP_EPARSE);
    snprintf(bad, sizeof bad, "%s0", hex);
    assert_int_equal(digest_from_hex(bad, &back, NULL), HP_EPARSE);
    snprintf(bad, sizeof bad, "%.63sg", hex);
    assert_int_equal(digest_from_hex(bad, &back, NULL), HP_EPARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_bytes_are_the_published_functions),
        cmocka_unit_test(hex_comes_back_and_nothing_else_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
