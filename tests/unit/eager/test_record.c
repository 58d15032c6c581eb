/*
 * The list of requests that a program records.
 */
#include "cache/request/text.h"
#include "eager/holder/holder_internal.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <pthread.h>
#include <sys/resource.h>

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};
static char list[300];

static void begin(void)
{
    fixture_begin();
    snprintf(list, sizeof list, "%s/list.txt", test_directory);
}

TestSuite(record, .init = begin, .fini = fixture_end);

static aoticache_recorder *open_list(void)
{
    aoticache_recorder *recorder = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_recorder_open(list, &recorder, &error), AOTICACHE_OK, "%s", error.message);
    return recorder;
}

static void add(aoticache_recorder *recorder, const char *text)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_parse(text, AOTICACHE_REQUEST_TEXT, &request, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_recorder_add(recorder, request);
    aoticache_request_free(request);
}

/* Returns the line for aten::abs of a float32 vector or matrix. */
static const char *abs_line(const char *sizes, const char *strides, const char *key_set)
{
    static char lines[4][300];
    static int next;
    char *line = lines[next++ % 4];
    snprintf(line, sizeof lines[0],
             "{\"operator\":\"aten::abs\",\"device\":\"cpu\",\"arguments\":[{\"kind\":\"tensor\",\"dtype\":\"float32\","
             "\"sizes\":[%s],\"strides\":[%s],\"device\":\"cpu\",\"layout\":\"strided\",\"requires_grad\":false,%s"
             "\"name\":\"\"}]}\n",
             sizes, strides, key_set);
    return line;
}

static char *content(void)
{
    FILE *file = fopen(list, "r");
    char *text = calloc(1, 1 << 20);
    cr_assert_not_null(file);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    cr_assert_lt(size, (1 << 20) - 1);
    fclose(file);
    return text;
}

static void expect_content(const char *expected)
{
    char *text = content();
    cr_expect_str_eq(text, expected);
    free(text);
}

static void put_content(const char *text)
{
    FILE *file = fopen(list, "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

Test(record, each_request_is_one_line)
{
    aoticache_recorder *recorder = open_list();
    expect_content("");
    add(recorder, "aten::abs(float32[2, 3]) on cpu");
    add(recorder, "aten::abs(float32[2, 3])");
    add(recorder, "aten::abs(float32[2, 4]) on cpu key_sets 0x8001");
    char expected[600];
    snprintf(expected, sizeof expected, "%s%s", abs_line("2,3", "3,1", ""),
             abs_line("2,4", "4,1", "\"dispatch_key_set\":\"0x8001\","));
    expect_content(expected);
    aoticache_recorder_close(recorder);
    aoticache_recorder_close(NULL);
    aoticache_recorder_add(NULL, NULL);
}

Test(record, environment_makes_no_other_line)
{
    aoticache_recorder *recorder = open_list();
    aoticache_request *request = NULL;
    cr_assert_eq(aoticache_request_create("aten::zeros", cpu, &request, NULL), AOTICACHE_OK);
    aoticache_recorder_add(recorder, request);
    cr_assert_eq(aoticache_request_set_environment(request, "framework", "cc", NULL), AOTICACHE_OK);
    aoticache_recorder_add(recorder, request);
    expect_content("{\"operator\":\"aten::zeros\",\"device\":\"cpu\",\"arguments\":[]}\n");
    aoticache_request_free(request);
    aoticache_recorder_close(recorder);
}

Test(record, constant_makes_a_line_that_says_so)
{
    aoticache_recorder *recorder = open_list();
    aoticache_request *request = NULL;
    const int64_t size = 2;
    const aoticache_digest digest = {{0x1a, 0x2b, 0x3c, 0x4d}};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 1, .sizes = &size};
    cr_assert_eq(aoticache_request_create("test::w", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, &digest, NULL), AOTICACHE_OK);
    aoticache_recorder_add(recorder, request);
    aoticache_recorder_add(recorder, request);
    expect_content("{\"left_out\":\"test::w(const float32[2]#1a2b3c4d) on cpu\",\"reason\":\"test::w: argument 0 is a "
                   "constant, and a line of text cannot contain its data\"}\n");
    aoticache_request_free(request);
    aoticache_recorder_close(recorder);
}

Test(record, lines_of_an_earlier_run_are_known)
{
    char before[1000], after[2000];
    snprintf(before, sizeof before, "# by hand\n\n%saten::abs(float32[1]) on cpu\n aten::abs(float32[2,2])",
             abs_line("4", "1", ""));
    put_content(before);
    aoticache_recorder *recorder = open_list();
    add(recorder, "aten::abs(float32[1])");    /* an earlier version wrote it */
    add(recorder, "aten::abs(float32[2, 2])"); /* written by hand */
    add(recorder, "aten::abs(float32[4])");
    add(recorder, "aten::abs(float32[3])");
    aoticache_recorder_close(recorder);
    snprintf(after, sizeof after, "%s\n%s", before, abs_line("3", "1", ""));
    expect_content(after);
}

Test(record, file_that_cannot_be_is_refused)
{
    aoticache_recorder *recorder = NULL;
    aoticache_error error = {.message = ""};
    cr_expect_eq(aoticache_recorder_open("", &recorder, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_recorder_open(test_directory, &recorder, &error), AOTICACHE_IO);
    cr_expect_not_null(strstr(error.message, test_directory));
    cr_assert_eq(mkfifo(list, 0600), 0);
    cr_expect_eq(aoticache_recorder_open(list, &recorder, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "not a regular file"), "%s", error.message);
    cr_expect_null(recorder);
}

/* A write beyond the limit would end the process with a signal. */
Test(record, limit_of_file_sizes_neither_fails_nor_ends_the_caller)
{
    struct rlimit limit = {.rlim_cur = 40,
                           .rlim_max = RLIM_INFINITY}; /* the file may have 40 bytes: not even the first line */
    aoticache_recorder *recorder = open_list();
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    add(recorder, "aten::abs(float32[1]) on cpu");
    add(recorder, "aten::abs(float32[2]) on cpu"); /* neither does the second */
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    add(recorder, "aten::abs(float32[3]) on cpu");
    aoticache_recorder_close(recorder);
    expect_content(abs_line("3", "1", ""));
}

/* ---- threads and processes ---- */

enum { WRITERS = 4, DIFFERENT = 200 };

static void *add_all(void *recorder)
{
    for (int i = 0; i < DIFFERENT; i++) {
        char text[64];
        snprintf(text, sizeof text, "aten::abs(float32[%d]) on cpu", i);
        add(recorder, text);
    }
    return NULL;
}

/* Checks that every line is whole. Returns their number. */
static size_t count_lines(void)
{
    size_t count = 0;
    char *text = content(), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        aoticache_request *request = NULL;
        cr_assert_eq(aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, &request, NULL), AOTICACHE_OK, "%s", line);
        int64_t size = aoticache_request_argument(request, 0)->value.tensor.metadata.sizes[0];
        cr_expect(size >= 0 && size < DIFFERENT);
        aoticache_request_free(request);
        count++;
    }
    free(text);
    return count;
}

Test(record, threads_write_each_line_once)
{
    aoticache_recorder *recorder = open_list();
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, add_all, recorder), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    aoticache_recorder_close(recorder);
    cr_assert_eq(count_lines(), DIFFERENT);
}

Test(record, processes_write_whole_lines)
{
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            aoticache_recorder *recorder = open_list();
            add_all(recorder);
            aoticache_recorder_close(recorder);
            _exit(0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int state = -1;
        cr_assert_eq(waitpid(children[i], &state, 0), children[i]);
        cr_assert_eq(state, 0);
    }
    size_t count = count_lines();
    cr_assert(count >= DIFFERENT && count <= WRITERS * DIFFERENT, "%zu", count);
}

Test(record, forked_child_continues)
{
    int state = -1;
    aoticache_recorder *recorder = open_list();
    add(recorder, "aten::abs(float32[1]) on cpu");
    pid_t child = fork();
    if (child == 0) {
        add(recorder, "aten::abs(float32[1]) on cpu"); /* from the file */
        add(recorder, "aten::abs(float32[2]) on cpu");
        aoticache_recorder_close(recorder);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert_eq(state, 0);
    add(recorder, "aten::abs(float32[3]) on cpu");
    aoticache_recorder_close(recorder);
    char expected[900];
    snprintf(expected, sizeof expected, "%s%s%s", abs_line("1", "1", ""), abs_line("2", "1", ""),
             abs_line("3", "1", ""));
    expect_content(expected);
}
