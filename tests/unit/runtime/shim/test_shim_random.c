/*
 * Random numbers: the generator's known numbers, one order for all threads, refusals.
 */
#include <pthread.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static AtenTensorHandle draw(int64_t count, int64_t high)
{
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(SHIM(aoti_torch_cpu_randint)(high, &count, 1, NULL, NULL, NULL, 0, NULL, &tensor), 0, "%s",
                 shim_message());
    return tensor;
}

/* The ten thousandth number of seed 5489 is in C++'s standard ([rand.predef]). */
Test(shim_random, engine_is_the_mersenne_twister)
{
    SHIM(torch_aoticache_manual_seed)(5489);
    AtenTensorHandle tensor = draw(10000, 1 << 27);
    cr_assert_eq(((int64_t *)shim_data(tensor))[9999], INT64_C(4123659995) % (1 << 27));
    shim_delete(tensor);
}

Test(shim_random, same_seed_gives_the_same_numbers)
{
    const int64_t count = 40;
    AtenTensorHandle first, second;
    for (int i = 0; i < 2; i++) {
        SHIM(torch_aoticache_manual_seed)(3);
        cr_assert_eq(SHIM(aoti_torch_cpu_randn)(&count, 1, NULL, NULL, NULL, 0, NULL, i == 0 ? &first : &second), 0);
    }
    cr_assert_eq(memcmp(shim_data(first), shim_data(second), 40 * sizeof(float)), 0);
    shim_delete(first);
    shim_delete(second);
}

static void *draw_many(void *argument)
{
    for (int i = 0; i < 200; i++) {
        AtenTensorHandle tensor = draw(50, 10);
        const int64_t *values = shim_data(tensor);
        for (int k = 0; k < 50; k++)
            if (values[k] < 0 || values[k] >= 10)
                *(bool *)argument = false;
        shim_delete(tensor);
    }
    return NULL;
}

/* However threads alternate, together they draw the same numbers as one would. */
Test(shim_random, threads_share_one_sequence)
{
    pthread_t threads[4];
    bool fine[4] = {true, true, true, true};
    SHIM(torch_aoticache_manual_seed)(11);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, draw_many, &fine[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert(fine[0] && fine[1] && fine[2] && fine[3]);
    AtenTensorHandle after = draw(1, 1000);
    SHIM(torch_aoticache_manual_seed)(11);
    AtenTensorHandle before = draw(4 * 200 * 50, 10), again = draw(1, 1000);
    cr_assert_eq(*(int64_t *)shim_data(after), *(int64_t *)shim_data(again));
    shim_delete(after);
    shim_delete(before);
    shim_delete(again);
}

Test(shim_random, wrong_arguments_are_refused)
{
    const int64_t one = 1;
    int32_t cuda = AOTICACHE_DEVICE_TYPE_CUDA;
    int object = 0;
    AtenGeneratorHandle generator = (AtenGeneratorHandle)&object;
    AtenTensorHandle tensor = NULL, result = NULL;
    SHIM_FAILS(SHIM(aoti_torch_cpu_rand)(&one, 1, NULL, NULL, &cuda, 0, NULL, &result), "needs PyTorch");
    SHIM_FAILS(SHIM(aoti_torch_cpu_rand_generator)(&one, 1, &generator, NULL, NULL, NULL, 0, NULL, &result),
               "custom generator");
    SHIM_FAILS(SHIM(aoti_torch_cpu_randperm)(-1, NULL, NULL, NULL, 0, NULL, &result), "invalid number of elements: -1");
    SHIM_FAILS(SHIM(aoti_torch_cpu_randint)(0, &one, 1, NULL, NULL, NULL, 0, NULL, &result), "from 0 to below 0");
    cr_assert_eq(SHIM(aoti_torch_cpu_rand)(&one, 1, NULL, NULL, NULL, 0, NULL, &tensor), 0);
    SHIM_FAILS(SHIM(aoti_torch_cpu_normal_functional)(tensor, 0, -1, NULL, &result), "standard deviation -1");
    SHIM_FAILS(SHIM(aoti_torch_cpu_uniform)(tensor, 2, 1, NULL, &result), "from 2 to 1");
    SHIM_FAILS(SHIM(aoti_torch_cpu_bernoulli__float)(tensor, 1.5, NULL), "invalid probability 1.5");
    cr_assert_null(result);
    shim_delete(tensor);
}
