from warm_integrations.core.stores.sqlite.file import *
