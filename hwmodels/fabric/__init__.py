from nativecore import native_path

__path__ = native_path(__name__, __path__)
