from warm_integrations.core.stores.sqlite.documents import *
