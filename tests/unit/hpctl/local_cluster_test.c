#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "hpctl/local_cluster.h"
#include "tests/test.h"

/* A box may have hundreds of cores, and a cluster's file may say any number. */
TEST(as_many_cores_as_there_may_be_are_named_whole)
{
    int cores[LOCAL_MAX_CORES];
    char text[LOCAL_CORES_TEXT];
    for (int i = 0; i < LOCAL_MAX_CORES; i++)
        cores[i] = INT_MIN + i;
    local_cores_text("cpu:", cores, LOCAL_MAX_CORES, text);
    assert_int_equal(strncmp(text, "cpu:", 4), 0);
    char *at = text + 4;
    for (int i = 0; i < LOCAL_MAX_CORES; i++, at += *at == ',')
        assert_int_equal(strtol(at, &at, 10), cores[i]);
    assert_int_equal(*at, '\0');
    local_cores_text("", cores, 0, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_cores_as_there_may_be_are_named_whole),
    };
    return cmocka_run_group_tests_name("local_cluster", tests, NULL, NULL);
}
