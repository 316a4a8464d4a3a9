/* Contexts: their file, who may read it, which one is the current one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hpctl/context.h"
#include "tests/test.h"

static char folder[64];

static int folder_open(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/hp-context-XXXXXX");
    return mkdtemp(folder) ? setenv("HP_CONFIG_DIR", folder, 1) : -1;
}

static int folder_close(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct context a_context(const char *name)
{
    struct context c = {.control = "box:7070", .http = "http://box:8080", .trust = "10.0.0.0/8"};
    struct err e = {0};
    struct key_pair server;
    snprintf(c.name, sizeof c.name, "%s", name);
    assert_int_equal(key_pair_create(&c.admin, &e), 0);
    assert_int_equal(key_pair_create(&server, &e), 0);
    memcpy(c.server_key, server.public_key, sizeof c.server_key);
    return c;
}

TEST(no_context_says_what_to_do)
{
    struct context c;
    struct err e = {0};
    assert_int_equal(context_load(NULL, &c, &e), HP_ENOCLUSTER);
    assert_non_null(strstr(e.hint, "hpctl local up"));
    assert_int_equal(context_load("home", &c, &e), HP_ENOCLUSTER);
    assert_non_null(strstr(e.text, "\"home\""));
}

TEST(a_context_comes_back_and_its_file_is_the_owners_alone)
{
    struct context c = a_context("home"), back;
    struct err e = {0};
    struct stat st;
    char file[200];
    assert_int_equal(context_save(&c, true, &e), 0);
    assert_int_equal(context_load(NULL, &back, &e), 0);
    assert_memory_equal(&c, &back, sizeof c);
    snprintf(file, sizeof file, "%s/contexts/home.json", folder);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

TEST(the_current_one_changes_only_when_asked_and_goes_with_its_context)
{
    struct context home = a_context("home"), office = a_context("office"), back;
    struct err e = {0};
    assert_int_equal(context_save(&home, true, &e), 0);
    assert_int_equal(context_save(&office, false, &e), 0);
    assert_int_equal(context_load(NULL, &back, &e), 0);
    assert_string_equal(back.name, "home");
    json_t *names = context_list();
    assert_int_equal(json_array_size(names), 2);
    assert_string_equal(json_string_value(json_array_get(names, 0)), "home");
    json_decref(names);
    assert_int_equal(context_remove("home", &e), 0);
    assert_int_equal(context_load(NULL, &back, &e), HP_ENOCLUSTER);
    assert_non_null(strstr(e.text, "known here: office"));
    assert_int_equal(context_load("office", &back, &e), 0);
}

TEST(the_one_before_is_the_current_one_again)
{
    struct err e = {0};
    struct context back;
    static const char *const chosen[] = {"home", "office", "demo", "office"};
    for (size_t i = 0; i < 4; i++) {
        struct context c = a_context(chosen[i]);
        assert_int_equal(context_save(&c, true, &e), 0);
    }
    static const char *const goes[] = {"office", "demo"}, *const left[] = {"demo", "home"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(context_remove(goes[i], &e), 0);
        assert_int_equal(context_load(NULL, &back, &e), 0);
        assert_string_equal(back.name, left[i]);
    }
    assert_int_equal(context_remove("home", &e), 0);
    assert_int_equal(context_load(NULL, &back, &e), HP_ENOCLUSTER);
    for (int i = 0; i < 40; i++) { /* more than are kept */
        struct context c = a_context("x");
        snprintf(c.name, sizeof c.name, "x%d", i);
        assert_int_equal(context_save(&c, true, &e), 0);
    }
    assert_int_equal(context_load(NULL, &back, &e), 0);
    assert_string_equal(back.name, "x39");
}

TEST(a_name_that_another_clusters_context_has_is_not_free)
{
    struct context home = a_context("home"), local = a_context("local"), other = a_context("z");
    struct err e = {0};
    snprintf(local.local_dir, sizeof local.local_dir, "/tmp/x");
    assert_int_equal(context_save(&home, true, &e), 0);
    assert_int_equal(context_save(&local, true, &e), 0);
    assert_int_equal(context_check_free("office", NULL, false, &e), 0);
    assert_int_equal(context_check_free("home", home.server_key, false, &e), 0);
    assert_int_equal(context_check_free("home", other.server_key, false, &e), HP_EEXIST);
    assert_int_equal(context_check_free("home", NULL, true, &e), HP_EEXIST);
    assert_non_null(strstr(e.text, "box:7070"));
    assert_non_null(strstr(e.hint, "--name"));
    assert_int_equal(context_check_free("local", NULL, true, &e), 0);
    assert_int_equal(context_check_free("local", NULL, false, &e), HP_EEXIST);
}

TEST(names_cannot_leave_the_folder)
{
    static const char *const bad[] = {"", ".", "..", "../x", "a/b", ".hidden", "a b", "\xC3\xA9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(context_check_name(bad[i], NULL), HP_EINVAL);
    assert_int_equal(context_check_name("a-b_c.d9", NULL), 0);
}

TEST(what_a_terminal_would_obey_is_refused)
{
    struct context c = a_context("home"), back;
    struct err e = {0};
    strcpy(c.control, "box\033[2J:7070");
    assert_int_equal(context_save(&c, false, &e), 0);
    assert_int_equal(context_load("home", &back, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "\"control\" has control characters"));
}

TEST(a_file_that_lacks_a_key_is_refused_by_path)
{
    struct context c = a_context("home"), back;
    struct err e = {0};
    json_t *o;
    assert_int_equal(context_to_json(&c, &o, &e), 0);
    json_object_del(o, "admin_secret_key");
    struct json_at at = {.file = "home.json", .value = o};
    assert_int_equal(context_from_json(&at, &back, &e), HP_EPARSE);
    assert_non_null(strstr(e.text, "admin_secret_key"));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_context_says_what_to_do, folder_open, folder_close),
        cmocka_unit_test_setup_teardown(a_context_comes_back_and_its_file_is_the_owners_alone,
                                        folder_open, folder_close),
        cmocka_unit_test_setup_teardown(
            the_current_one_changes_only_when_asked_and_goes_with_its_context, folder_open,
            folder_close),
        cmocka_unit_test_setup_teardown(the_one_before_is_the_current_one_again, folder_open,
                                        folder_close),
        cmocka_unit_test_setup_teardown(a_name_that_another_clusters_context_has_is_not_free,
                                        folder_open, folder_close),
        cmocka_unit_test(names_cannot_leave_the_folder),
        cmocka_unit_test_setup_teardown(what_a_terminal_would_obey_is_refused, folder_open,
                                        folder_close),
        cmocka_unit_test(a_file_that_lacks_a_key_is_refused_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
