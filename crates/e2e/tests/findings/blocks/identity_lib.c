/* A library that calls the program when it is loaded. */
void in_constructor(void);

__attribute__((constructor)) static void loaded(void)
{
    in_constructor();
}
