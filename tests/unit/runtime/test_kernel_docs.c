/*
 * The example of docs/kernels.md compiles as printed, with the installed headers, and computes what the page says.
 */
#include "kernel_fixture.h"

/* Copies the library (docs/kernels.md linear) from the page to the directory. */
static void extract_example(const char *path)
{
    char line[256];
    bool inside = false;
    FILE *page = fopen("docs/kernels.md", "r"), *source = fopen(path, "w");
    cr_assert(page != NULL && source != NULL);
    while (fgets(line, sizeof line, page) != NULL) {
        if (inside && strcmp(line, "```\n") == 0)
            break;
        if (inside)
            fputs(line, source);
        else if (strcmp(line, "<!-- example: linear -->\n") == 0)
            inside = fgets(line, sizeof line, page) != NULL; /* the fence */
    }
    cr_assert(inside && fclose(source) == 0 && fclose(page) == 0);
}

Test(kernel_docs, the_example_compiles_and_runs)
{
    char directory[128], path[160];
    float x[] = {1, 1, 1};
    const int64_t three[] = {3};
    own_directory_make(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/example.c", directory);
    extract_example(path);
    kernel_compile_path(path, "");
    kernel_load();
    kernel_remove();
    AOTInductorModelContainerHandle container = kernel_create(1);
    AtenTensorHandle input = shim_wrap(x, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL), output = NULL;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerRun)(container, &input, 1, &output, 1, NULL, NULL));
    const float *y = shim_data(output);
    cr_assert(y[0] == 16 && y[1] == 35);
    shim_delete(output);
    KERNEL(AOTInductorModelContainerDelete)(container);
}
