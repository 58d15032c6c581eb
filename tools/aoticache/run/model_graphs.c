/*
 * aoticache model why: describes the first difference between the graphs of two stored models or programs. A graph is a text
 * stored next to the library, one fact per line: "node 3 of the graph: aten.relu.default(%2)".
 */
#include "base/cleanup.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/run/run_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct graph {
    const char *word;
    aoticache_artifact *artifact;
    aoticache_model_report report;
    FILE *file;
    char *line; /* the current one, without its line end */
    size_t capacity;
    bool is_over;
};

static void graph_free(struct graph *graph)
{
    if (graph->file != NULL)
        fclose(graph->file);
    free(graph->line);
    aoticache_artifact_unref(graph->artifact);
}

static int open_graph(const aoticache_cli *cli, aoticache_cache *cache, const char *word, struct graph *graph)
{
    aoticache_error error = {.message = ""};
    cleanup_free char *path = NULL;
    graph->word = word;
    aoticache_status status = aoticache_model_lookup(cache, word, NULL, &graph->artifact, &graph->report, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    if (asprintf(&path, "%s/graph.txt", aoticache_artifact_get_info(graph->artifact)->directory) < 0) {
        path = NULL;
        aoticache_cli_out_of_memory();
    }
    graph->file = fopen(path, "re");
    if (graph->file == NULL)
        return aoticache_cli_error(cli, "%s has no graph.txt: %s", word, strerror(errno));
    return AOTICACHE_CLI_EXIT_OK;
}

static void read_line(struct graph *graph)
{
    ssize_t length = getline(&graph->line, &graph->capacity, graph->file);
    graph->is_over = length < 0;
    if (length > 0 && graph->line[length - 1] == '\n')
        graph->line[length - 1] = '\0';
}

/* Reads until they differ. Returns false if they are equal. */
static bool find_difference(struct graph *first, struct graph *second)
{
    do {
        read_line(first);
        read_line(second);
    } while (!first->is_over && !second->is_over && strcmp(first->line, second->line) == 0);
    return !first->is_over || !second->is_over;
}

/* Splits "node 3 of the graph: fact" in two. */
static const char *split(struct graph *graph, const char **ret_place)
{
    char *colon = graph->is_over ? NULL : strstr(graph->line, ": ");
    *ret_place = graph->is_over ? "" : graph->line;
    if (colon == NULL)
        return graph->is_over ? "nothing more" : "";
    *colon = '\0';
    return colon + 2;
}

static int print_json(const struct graph *const graphs[2], const char *const places[2], const char *const facts[2],
                      bool differ)
{
    static const char *const names[2] = {"first", "second"};
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "same_graph", json_boolean(!differ));
    for (size_t i = 0; i < 2; i++) {
        json_t *side = aoticache_cli_json_object();
        aoticache_cli_json_set(side, "model", aoticache_cli_json_text(graphs[i]->word));
        aoticache_cli_json_set(side, "key", aoticache_cli_json_digest(&graphs[i]->report.key));
        aoticache_cli_json_set(side, "framework", aoticache_cli_json_text(graphs[i]->report.framework));
        if (differ) {
            aoticache_cli_json_set(side, "place", aoticache_cli_json_text(places[i]));
            aoticache_cli_json_set(side, "fact", aoticache_cli_json_text(facts[i]));
        }
        aoticache_cli_json_set(object, names[i], side);
    }
    aoticache_cli_json_print(object);
    return differ ? AOTICACHE_CLI_EXIT_NOT_FOUND : AOTICACHE_CLI_EXIT_OK;
}

static int print(const aoticache_cli *cli, struct graph *first, struct graph *second, bool differ)
{
    const char *places[2] = {"", ""}, *facts[2] = {"", ""};
    if (differ) {
        facts[0] = split(first, &places[0]);
        facts[1] = split(second, &places[1]);
    }
    if (cli->json)
        return print_json((const struct graph *const[]){first, second}, places, facts, differ);
    if (!differ) {
        printf("the graphs of %s and %s are the same\n", first->word, second->word);
        if (strcmp(first->report.framework, second->report.framework) != 0)
            printf("%s was compiled by %s, %s by %s\n", first->word, first->report.framework, second->word,
                   second->report.framework);
        return AOTICACHE_CLI_EXIT_OK;
    }
    const bool same_place = strcmp(places[0], places[1]) == 0 || places[1][0] == '\0';
    printf("%s\n", same_place ? places[0] : places[0][0] == '\0' ? places[1] : "the first difference");
    aoticache_cli_print_field(cli, first->word, "%s%s%s", same_place ? "" : places[0], same_place ? "" : ": ",
                              facts[0]);
    aoticache_cli_print_field(cli, second->word, "%s%s%s", same_place ? "" : places[1], same_place ? "" : ": ",
                              facts[1]);
    return AOTICACHE_CLI_EXIT_NOT_FOUND;
}

int aoticache_model_compare_graphs(const aoticache_cli *cli, aoticache_cache *cache, const char *first,
                                   const char *second)
{
    struct graph graphs[2] = {{.word = NULL}};
    int result = open_graph(cli, cache, first, &graphs[0]);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = open_graph(cli, cache, second, &graphs[1]);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = print(cli, &graphs[0], &graphs[1], find_difference(&graphs[0], &graphs[1]));
    graph_free(&graphs[0]);
    graph_free(&graphs[1]);
    return result;
}
