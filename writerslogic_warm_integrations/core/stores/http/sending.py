from warm_integrations.core.stores.http.sending import *
