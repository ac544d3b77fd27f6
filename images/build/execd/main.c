/*
 * The program of the frozen bundle: an interpreter, the part of the standard
 * library that execd needs, and execd itself, in one static file.
 *
 * Everything a file system or an environment could change is switched off: the
 * image this runs in belongs to somebody else. No search path, no site, no
 * PYTHON* variables, no locale; the only modules are the built-in ones and the
 * frozen table that is linked beside this file.
 *
 * Reference: docs.python.org, C API, "Python Initialization Configuration".
 */
#include <Python.h>
#include <stdbool.h>

#ifndef BUNDLE_MOUNT
#error "BUNDLE_MOUNT must name the directory the bundle is mounted at"
#endif
#define WIDEN_(text) L##text
#define WIDEN(text) WIDEN_(text)
#define MOUNT WIDEN(BUNDLE_MOUNT)

extern const struct _frozen bundle_modules[];

/* Naming these keeps the interpreter from searching the image for its home. */
static PyStatus set_paths(PyConfig *config)
{
    const struct {
        wchar_t **field;
        const wchar_t *value;
    } paths[] = {
        {&config->program_name, MOUNT L"/execd"},
        {&config->executable, MOUNT L"/execd"},
        {&config->base_executable, MOUNT L"/execd"},
        {&config->home, MOUNT},
        {&config->prefix, MOUNT},
        {&config->base_prefix, MOUNT},
        {&config->exec_prefix, MOUNT},
        {&config->base_exec_prefix, MOUNT},
        {&config->stdlib_dir, MOUNT},
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        PyStatus status = PyConfig_SetString(config, paths[i].field, paths[i].value);
        if (PyStatus_Exception(status)) {
            return status;
        }
    }
    return PyStatus_Ok();
}

#ifdef WITH_MIMALLOC
void mi_collect(bool force); /* of the interpreter's own copy, whose header is not installed */

static PyObject *trim(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    mi_collect(true);
    Py_RETURN_NONE;
}

static PyMethodDef memory_methods[] = {
    {"trim", trim, METH_NOARGS, "Give memory that is free back to the system now, not at some later allocation."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef memory_module = {
    PyModuleDef_HEAD_INIT, .m_name = "_boxwright_memory", .m_size = 0, .m_methods = memory_methods,
};

static PyObject *make_memory_module(void)
{
    return PyModuleDef_Init(&memory_module);
}
#endif

static PyStatus start(int argc, char **argv)
{
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    before.configure_locale = 0;
#ifdef WITH_MIMALLOC
    /* musl maps and unmaps every block of 64 KiB or more, and each of its pages faults anew. */
    before.allocator = PYMEM_ALLOCATOR_MIMALLOC;
#endif
    PyStatus status = Py_PreInitialize(&before);
    if (PyStatus_Exception(status)) {
        return status;
    }

    PyImport_FrozenModules = bundle_modules;
#ifdef WITH_MIMALLOC
    if (PyImport_AppendInittab("_boxwright_memory", make_memory_module) < 0) {
        return PyStatus_NoMemory();
    }
#endif

    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.site_import = 0;
    config.write_bytecode = 0;
    config.pathconfig_warnings = 0;
    config.optimization_level = 2;
    config.module_search_paths_set = 1;
    /* As `python3 -I` does: SIGPIPE ignored, SIGINT raises. */
    config.install_signal_handlers = 1;
    status = set_paths(&config);
    if (!PyStatus_Exception(status)) {
        status = PyConfig_SetBytesArgv(&config, argc, argv);
    }
    if (!PyStatus_Exception(status)) {
        status = Py_InitializeFromConfig(&config);
    }
    PyConfig_Clear(&config);
    return status;
}

/* Call execd.__main__.main(sys.argv[1:]); its int is the exit status. */
static int run(void)
{
    PyObject *arguments = NULL, *module = NULL, *entry = NULL, *result = NULL;
    int code = 1;

#if PY_VERSION_HEX < 0x030D0000
    /* Before 3.13 the C scanner takes the exception for malformed text from the loaded
     * json.decoder, and raises SystemError if nobody has loaded it. */
    PyObject *decoder = PyImport_ImportModule("json.decoder");
    if (decoder == NULL) {
        PyErr_Print();
        return code;
    }
    Py_DECREF(decoder);
#endif

    PyObject *argv = PySys_GetObject("argv"); /* borrowed */
    if (argv != NULL && PyList_Check(argv)) {
        arguments = PyList_GetSlice(argv, 1, PyList_GET_SIZE(argv));
    }
    if (arguments != NULL) {
        module = PyImport_ImportModule("execd.__main__");
    }
    if (module != NULL) {
        entry = PyObject_GetAttrString(module, "main");
    }
    if (entry != NULL) {
        result = PyObject_CallOneArg(entry, arguments);
    }
    if (result != NULL) {
        code = (int)PyLong_AsLong(result);
    }
    if (PyErr_Occurred()) {
        code = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) ? 130 : 1;
        PyErr_Print(); /* does not come back from SystemExit */
    }
    Py_XDECREF(result);
    Py_XDECREF(entry);
    Py_XDECREF(module);
    Py_XDECREF(arguments);
    return code;
}

int main(int argc, char **argv)
{
    PyStatus status = start(argc, argv);
    if (PyStatus_Exception(status)) {
        Py_ExitStatusException(status);
    }
    int code = run();
    if (Py_FinalizeEx() < 0 && code == 0) {
        code = 120; /* as python3 itself says: standard output could not be flushed */
    }
    return code;
}
