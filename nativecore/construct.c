/* Makes facts: the ``__call__`` of a fact's metaclass, as ``serving.vocabulary.fact`` writes it in Python.

   A fact is frozen, so its fields are set past ``__setattr__``: here at their places in the object. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *names;    /* of the fields, in order */
    PyObject *defaults; /* values of the last ones */
    Py_ssize_t *places; /* offsets in the object */
} Constructor;

static int place_of(PyObject *names, PyObject *name)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(names, i), name, Py_EQ);
        if (same)
            return same < 0 ? -2 : (int)i;
    }
    return -1;
}

static int set_named(Constructor *self, char *made, PyObject *const *values, PyObject *kwnames)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
        int place = place_of(self->names, PyTuple_GET_ITEM(kwnames, i));
        if (place == -2)
            return -1;
        PyObject **field = place < 0 ? NULL : (PyObject **)(made + self->places[place]);
        if (field == NULL || *field != NULL) {
            PyErr_Format(PyExc_TypeError, "%.200s() got %s argument '%U'", Py_TYPE((PyObject *)made)->tp_name,
                         field == NULL ? "an unexpected keyword" : "multiple values for",
                         PyTuple_GET_ITEM(kwnames, i));
            return -1;
        }
        *field = Py_NewRef(values[i]);
    }
    return 0;
}

static int set_defaults(Constructor *self, char *made, Py_ssize_t given)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->names), first = count - PyTuple_GET_SIZE(self->defaults);
    for (Py_ssize_t i = given; i < count; i++) {
        PyObject **field = (PyObject **)(made + self->places[i]);
        if (*field != NULL)
            continue;
        if (i < first) {
            PyErr_Format(PyExc_TypeError, "%.200s() misses the argument '%U'", Py_TYPE((PyObject *)made)->tp_name,
                         PyTuple_GET_ITEM(self->names, i));
            return -1;
        }
        *field = Py_NewRef(PyTuple_GET_ITEM(self->defaults, i - first));
    }
    return 0;
}

/* Arguments: the class, then the values of its fields. */
static PyObject *construct(PyObject *callable, PyObject *const *arguments, size_t flags, PyObject *kwnames)
{
    Constructor *self = (Constructor *)callable;
    Py_ssize_t given = PyVectorcall_NARGS(flags) - 1, count = PyTuple_GET_SIZE(self->names);
    if (given < 0 || !PyType_Check(arguments[0]) || given > count) {
        PyErr_Format(PyExc_TypeError, "a fact of %zd fields was given %zd values", count, given);
        return NULL;
    }
    PyTypeObject *cls = (PyTypeObject *)arguments[0];
    PyObject *made = cls->tp_alloc(cls, 0);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < given; i++)
        *(PyObject **)((char *)made + self->places[i]) = Py_NewRef(arguments[i + 1]);
    if ((kwnames != NULL && set_named(self, (char *)made, arguments + given + 1, kwnames) < 0)
        || (given < count && set_defaults(self, (char *)made, given) < 0)) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

/* As a function of the metaclass: bound to the class where it is looked up. */
static PyObject *bound(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    return owner == NULL ? Py_NewRef(self) : PyMethod_New(self, owner);
}

static void dealloc(Constructor *self)
{
    PyMem_Free(self->places);
    Py_XDECREF(self->names);
    Py_XDECREF(self->defaults);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject ConstructorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nativecore.construct.Constructor",
    .tp_basicsize = sizeof(Constructor),
    .tp_dealloc = (destructor)dealloc,
    .tp_vectorcall_offset = offsetof(Constructor, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bound,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
};

/* constructor(class, names of its fields, default values of the last ones) */
static PyObject *constructor(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *cls, *names, *defaults;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyType_Type, &cls, &PyTuple_Type, &names, &PyTuple_Type, &defaults))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    Constructor *made = PyObject_New(Constructor, &ConstructorType);
    if (made == NULL)
        return NULL;
    made->call = construct;
    made->names = Py_NewRef(names);
    made->defaults = Py_NewRef(defaults);
    made->places = PyMem_Calloc(count ? count : 1, sizeof(Py_ssize_t));
    for (Py_ssize_t i = 0; made->places != NULL && i < count; i++) {
        PyObject *slot = PyObject_GetAttr(cls, PyTuple_GET_ITEM(names, i));
        if (slot == NULL || !Py_IS_TYPE(slot, &PyMemberDescr_Type)) {
            if (slot != NULL)
                PyErr_Format(PyExc_TypeError, "%R is no slot", slot);
            Py_XDECREF(slot);
            Py_DECREF(made);
            return NULL;
        }
        made->places[i] = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_DECREF(slot);
    }
    if (made->places == NULL) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    return (PyObject *)made;
}

static PyMethodDef functions[] = {{"constructor", constructor, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "construct", NULL, -1, functions};

PyMODINIT_FUNC PyInit_construct(void)
{
    return PyType_Ready(&ConstructorType) < 0 ? NULL : PyModule_Create(&module);
}
