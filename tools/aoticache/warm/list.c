/*
 * tools/aoticache/warm/list: reads lists of requests, one per line, with empty lines and comments between them. A request is
 * a line of JSON, or a line of text as printed by `aoticache ls`.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/warm/warm_internal.h"

#include <string.h>

#define WRONG_LINES_TOLD 20

/* Converts "column 12: reason" to "FILE:LINE:12: reason". */
static void report_wrong_line(const aoticache_cli *cli, aoticache_warm_list *list, const char *file, size_t line,
                              const char *message)
{
    size_t column = 0;
    int prefix = 0;
    if (list->wrong++ >= WRONG_LINES_TOLD)
        return;
    if (sscanf(message, "column %zu: %n", &column, &prefix) == 1 && prefix > 0)
        aoticache_cli_error(cli, "%s:%zu:%zu: %s", file, line, column, message + prefix);
    else
        aoticache_cli_error(cli, "%s:%zu: %s", file, line, message);
}

static void add_item(aoticache_warm_list *list, aoticache_warm_item item)
{
    list->items = aoticache_cli_grow(list->items, list->count, sizeof item);
    list->items[list->count++] = item;
}

bool aoticache_warm_line_is_request(const char *line)
{
    line += strspn(line, " \t\r\n");
    if (line[0] != '{')
        return line[0] != '\0' && line[0] != '#';
    json_t *object = json_loads(line, 0, NULL);
    bool is_left_out = json_object_get(object, "left_out") != NULL;
    json_decref(object);
    return !is_left_out;
}

static void read_line(const aoticache_cli *cli, aoticache_warm_list *list, const char *file, size_t number,
                      const char *line, size_t length)
{
    aoticache_warm_item item = {.file = file, .line = number};
    aoticache_error error = {.message = ""};
    if (strlen(line) < length) {
        snprintf(error.message, sizeof error.message, "column %zu: a zero byte: not a list", strlen(line) + 1);
        report_wrong_line(cli, list, file, number, error.message);
        return;
    }
    if (!aoticache_warm_line_is_request(line))
        return;
    aoticache_status status = aoticache_kernel_parse_line(line, &item.request, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_write(item.request, AOTICACHE_REQUEST_TEXT, &item.text, &error);
    if (status == AOTICACHE_OK) {
        add_item(list, item);
    } else {
        report_wrong_line(cli, list, file, number, error.message);
        aoticache_request_free(item.request);
    }
}

int aoticache_warm_read(const aoticache_cli *cli, const char *path, aoticache_warm_list *list)
{
    bool is_input = strcmp(path, "-") == 0;
    const char *name = is_input ? "standard input" : path;
    cleanup_file FILE *opened = is_input ? NULL : fopen(path, "re");
    FILE *file = is_input ? stdin : opened;
    if (file == NULL)
        return aoticache_cli_error(cli, "cannot open %s: %s", path, strerror(errno));
    cleanup_free char *line = NULL;
    size_t size = 0, number = 0;
    errno = 0;
    for (ssize_t length; (length = getline(&line, &size, file)) > 0;)
        read_line(cli, list, name, ++number, line, (size_t)length);
    if (!feof(file))
        return aoticache_cli_error(cli, "cannot read %s: %s", name, strerror(errno));
    return AOTICACHE_CLI_EXIT_OK;
}

static int compare_texts(const void *left, const void *right)
{
    const aoticache_warm_item *const *a = left, *const *b = right;
    int order = strcmp((*a)->text, (*b)->text);
    return order != 0 ? order : (*a > *b) - (*a < *b);
}

static void item_free(aoticache_warm_item *item)
{
    aoticache_request_free(item->request);
    free(item->text);
    free(item->message);
    *item = (aoticache_warm_item){0};
}

void aoticache_warm_remove_repeated(aoticache_warm_list *list)
{
    size_t kept = 0;
    if (list->count == 0)
        return;
    cleanup_free aoticache_warm_item **sorted = aoticache_cli_allocate(list->count, sizeof *sorted);
    for (size_t i = 0; i < list->count; i++)
        sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, compare_texts);
    for (size_t i = 1, first = 0; i < list->count; i++) {
        if (strcmp(sorted[first]->text, sorted[i]->text) == 0)
            item_free(sorted[i]);
        else
            first = i;
    }
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].text != NULL)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

void aoticache_warm_free(aoticache_warm_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        item_free(&list->items[i]);
    free(list->items);
    *list = (aoticache_warm_list){0};
}
